"""The response_url of each interaction: valid for five uses within 30 minutes."""

import secrets
from dataclasses import dataclass

from bot.slack_emulator import posting
from bot.slack_emulator.delivery import AppDelivery
from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.state import Channel, Json, Team

MAX_USES = 5
LIFETIME_S = 30 * 60


@dataclass
class ResponseUrl:
    """Where a message posted to a response_url goes."""

    channel: Channel
    user_id: str
    issued_at: float
    message_ts: str | None
    is_ephemeral: bool
    uses: int = 0


class ResponseUrls:
    """Issues response_urls and handles the app's posts to them."""

    def __init__(self, team: Team, delivery: AppDelivery) -> None:
        self.base_url = ""
        self._team = team
        self._delivery = delivery
        self._issued: dict[str, ResponseUrl] = {}

    def issue(self, channel: Channel, user_id: str, message: Json | None = None) -> str:
        """Return a new response_url; `message` is the one the interaction came from."""
        self._purge_expired()
        key = secrets.token_urlsafe(18)
        ts = None if message is None else message["ts"]
        ephemeral = bool(message and message.get("ephemeral"))
        self._issued[key] = ResponseUrl(channel, user_id, self._team.clock(), ts, ephemeral)
        return f"{self.base_url}/actions/{self._team.id}/{key}"

    def _purge_expired(self) -> None:
        """Drop URLs that expired long ago. The dict is ordered by creation time."""
        while self._issued:
            oldest = next(iter(self._issued))
            if self._team.clock() - self._issued[oldest].issued_at < 2 * LIFETIME_S:
                return
            del self._issued[oldest]

    def use(self, key: str, response: Json) -> None:
        """Handle a post to a response_url. Raises SlackError (`used_url`, `expired_url`, malformed message)."""
        response_url = self._issued.get(key)
        if response_url is None:
            raise SlackError("no_service", status=404)
        if self._team.clock() - response_url.issued_at > LIFETIME_S:
            raise SlackError("expired_url", status=404)
        if response_url.uses >= MAX_USES:
            raise SlackError("used_url", status=404)
        self.respond(response_url.channel, response_url.user_id, response, response_url)
        response_url.uses += 1

    def respond(self, channel: Channel, user_id: str, response: Json, response_url: ResponseUrl | None = None) -> None:
        """Post a response: ephemeral by default, `in_channel`, or replacing the original message."""
        if response.get("delete_original"):
            self._delete(response_url)
            return
        posting.check(response)
        content = posting.content_of(response)
        if response.get("replace_original") and response_url is not None and response_url.message_ts is not None:
            self._replace(response_url, response_url.message_ts, content)
            return
        message = posting.from_app(self._team, content)
        if response.get("thread_ts"):
            message["thread_ts"] = response["thread_ts"]
        if response.get("response_type") == "in_channel":
            posting.send(self._team, self._delivery, channel, message)
        else:
            self._team.post_ephemeral(channel, user_id, message)

    def _delete(self, response_url: ResponseUrl | None) -> None:
        if response_url is None or response_url.message_ts is None:
            return
        if response_url.is_ephemeral:
            self._team.delete_ephemeral(response_url.channel, response_url.user_id, response_url.message_ts)
        elif response_url.message_ts in response_url.channel.messages:
            posting.delete(self._team, self._delivery, response_url.channel, response_url.message_ts)

    def _replace(self, response_url: ResponseUrl, ts: str, content: Json) -> None:
        if response_url.is_ephemeral:
            before = response_url.channel.ephemerals.get(response_url.user_id, {}).get(ts, {})
            kept = {"thread_ts": before["thread_ts"]} if "thread_ts" in before else {}
            self._team.post_ephemeral(
                response_url.channel, response_url.user_id, posting.from_app(self._team, {**content, **kept, "ts": ts})
            )
        elif ts in response_url.channel.messages:
            fresh = {"blocks": None, "attachments": None, **content}
            posting.update(self._team, self._delivery, response_url.channel, ts, fresh)
