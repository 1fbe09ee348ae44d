"""Delivery as signed HTTP requests to the app's request URL."""

import hashlib
import hmac
import json
from collections.abc import Callable
from urllib.parse import urlencode

import aiohttp

from bot.slack_emulator.state import Json


class HttpRefused(Exception):
    """The app responded with an HTTP error; `no_retry` if it sent `X-Slack-No-Retry: 1`."""

    def __init__(self, status: int, *, no_retry: bool) -> None:
        super().__init__(f"the app responded with HTTP {status}")
        self.status = status
        self.no_retry = no_retry


def signature(secret: str, timestamp: str, body: bytes) -> str:
    """Slack's v0 signature of a request (docs.slack.dev, "Verifying requests from Slack")."""
    base = b"v0:" + timestamp.encode() + b":" + body
    return "v0=" + hmac.new(secret.encode(), base, hashlib.sha256).hexdigest()


def encode(kind: str, payload: Json) -> tuple[bytes, str]:
    """Body and content type: a form for commands, a form with JSON for interactions, JSON for events."""
    if kind == "slash_commands":
        return urlencode(payload).encode(), "application/x-www-form-urlencoded"
    if kind == "interactive":
        return urlencode({"payload": json.dumps(payload)}).encode(), "application/x-www-form-urlencoded"
    return json.dumps(payload).encode(), "application/json"


class HttpDelivery:
    """Posts payloads to the app's request URL."""

    def __init__(self, signing_secret: str, clock: Callable[[], float]) -> None:
        self._secret = signing_secret
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None

    async def send(self, url: str, kind: str, payload: Json, retry: tuple[int, str] | None = None) -> Json:
        """Post a payload and return the app's response. Raises HttpRefused or aiohttp.ClientError."""
        body, content_type = encode(kind, payload)
        timestamp = str(int(self._clock()))
        headers = {
            "Content-Type": content_type,
            "User-Agent": "Slackbot 1.0 (+https://api.slack.com/robots)",
            "X-Slack-Request-Timestamp": timestamp,
            "X-Slack-Signature": signature(self._secret, timestamp, body),
        }
        if retry is not None and retry[0]:
            headers |= {"X-Slack-Retry-Num": str(retry[0]), "X-Slack-Retry-Reason": retry[1]}
        self._session = self._session or aiohttp.ClientSession()
        async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as response:
            text = await response.text()
            if not 200 <= response.status < 300:
                raise HttpRefused(response.status, no_retry=response.headers.get("X-Slack-No-Retry") == "1")
            return _response_payload(text)

    async def close(self) -> None:
        """Close the HTTP session."""
        if self._session is not None:
            await self._session.close()


def _response_payload(text: str) -> Json:
    if not text.strip():
        return {}
    try:
        payload = json.loads(text)
    except ValueError:
        return {"text": text}
    return payload if isinstance(payload, dict) else {"text": text}
