"""Delivery of payloads to the app over its transport, with acknowledgements and retries."""

import asyncio
import secrets
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import aiohttp

from bot.slack_emulator.faults import Faults
from bot.slack_emulator.feed import PageFeed
from bot.slack_emulator.http_delivery import HttpDelivery, HttpRefused
from bot.slack_emulator.manifest import Manifest
from bot.slack_emulator.socket_mode import SocketMode
from bot.slack_emulator.state import Channel, Json, Team, new_id

TRAFFIC_KEPT = 5000  # enough for any test, and bounded because it is held in memory
Traffic: TypeAlias = tuple[str, str, Json, str | None]  # direction, name, body, status
OBSERVERS: list[Callable[[str, str, Json], None]] = []
"""Called with direction, name and body of each payload, for tests that judge what an app sends."""
SECRET_KEYS = ("token", "response_url", "trigger_id", "upload_url")


@dataclass(frozen=True)
class Acknowledgement:
    """The app's acknowledgement; `error` is Slack's error code if it failed."""

    error: str | None = None
    body: Json = field(default_factory=dict)
    no_retry: bool = False


class AppDelivery:
    """Sends slash commands, interactions and events to the app."""

    def __init__(
        self,
        team: Team,
        manifest: Manifest,
        faults: Faults,
        socket: SocketMode,
        http: HttpDelivery,
        *,
        ack_limit_s: float,
        retry_delays_s: Sequence[float],
    ) -> None:
        self.requests_url: str | None = None
        self.traffic: deque[Traffic] = deque(maxlen=TRAFFIC_KEPT)
        self.verification_token = secrets.token_hex(12)
        self._team = team
        self._feed: PageFeed = team.feed
        self._manifest = manifest
        self._faults = faults
        self._socket = socket
        self._http = http
        self.ack_limit_s = ack_limit_s
        self._retry_delays_s = retry_delays_s
        self._tasks: set[asyncio.Task[object]] = set()

    async def request(self, kind: str, what: str, payload: Json) -> Acknowledgement:
        """Deliver a command or an interaction once and wait for its acknowledgement."""
        self.record("to_app", what, payload)
        if self._faults.take(f"twice:{kind}"):
            self._in_background(self._send(kind, payload))
        response = await self._send(kind, payload)
        if response.body:
            self.record("from_app", f"{what} (ack)", response.body)
        return response

    def send_event(self, event_name: str, event: Json, channel: Channel | None = None) -> None:
        """Deliver an event if the app subscribed to it, with retries until acknowledged."""
        if self._manifest.subscribes_to(event_name):
            self._in_background(self._send_with_retries(self._envelope(event, channel)))

    def record(self, direction: str, what: str, body: Json, status: str | None = None) -> None:
        """Record a payload, without secrets, for `traffic` and the page's developer panel."""
        shown = without_secrets(body)
        self.traffic.append((direction, what, shown, status))
        for observe in OBSERVERS:
            observe(direction, what, body)
        event: Json = {"type": "payload", "direction": direction, "what": what, "body": shown}
        self._feed.publish_payload(event if status is None else {**event, "status": status})

    async def close(self) -> None:
        """Cancel pending deliveries."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _in_background(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_with_retries(self, payload: Json) -> None:
        """Send an event; retry after each of the retry delays until it is acknowledged."""
        self.record("to_app", f"event {payload['event']['type']}", payload)
        response = await self._send("events_api", payload, (0, ""))
        if self._faults.take("twice:events_api"):
            await self._send("events_api", payload, (1, "timeout"))
        for attempt, delay_s in enumerate(self._retry_delays_s, start=1):
            if response.error is None or response.no_retry:
                return
            await asyncio.sleep(delay_s)
            reason = self._retry_reason(response.error)
            self.record("to_app", f"event {payload['event']['type']} (retry {attempt}: {reason})", payload)
            response = await self._send("events_api", payload, (attempt, reason))

    def _retry_reason(self, error: str) -> str:
        if self.requests_url is None:
            return "timeout"
        return {"operation_timeout": "http_timeout", "dispatch_failed": "connection_failed"}.get(error, "http_error")

    async def _send(self, kind: str, payload: Json, retry: tuple[int, str] | None = None) -> Acknowledgement:
        try:
            async with asyncio.timeout(self.ack_limit_s):
                if self.requests_url is not None:
                    body = await self._http.send(self.requests_url, kind, payload, retry)
                else:
                    body = await self._socket.send(kind, payload, answers=kind != "events_api", retry=retry)
                return Acknowledgement(body=body)
        except TimeoutError:
            return Acknowledgement("operation_timeout")
        except HttpRefused as refused:
            error = "http_client_error" if refused.status < 500 else "http_service_error"
            return Acknowledgement(error, no_retry=refused.no_retry)
        except (ConnectionError, aiohttp.ClientError):
            return Acknowledgement("dispatch_failed")

    def _envelope(self, event: Json, channel: Channel | None) -> Json:
        team = self._team
        authorization = {"team_id": team.id, "user_id": team.bot_user_id, "is_bot": True}
        return {
            "token": self.verification_token,
            "team_id": team.id,
            "context_team_id": team.id,
            "context_enterprise_id": None,
            "api_app_id": team.app_id,
            "event": event,
            "type": "event_callback",
            "event_id": new_id("Ev"),
            "event_time": int(team.clock()),
            "authorizations": [{"enterprise_id": None, **authorization, "is_enterprise_install": False}],
            "is_ext_shared_channel": channel is not None and channel.is_shared,
            "event_context": f"4-{secrets.token_hex(16)}",
        }


def without_secrets(value: Any) -> Any:
    """A copy with tokens, response_urls, trigger ids and upload URLs masked."""
    if isinstance(value, dict):
        return {k: "…" if k in SECRET_KEYS and v else without_secrets(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without_secrets(item) for item in value]
    return value
