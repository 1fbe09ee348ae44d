"""The response_url of each interaction: five uses in thirty minutes."""

import secrets
from dataclasses import dataclass

from bot.slack_emulator import posting
from bot.slack_emulator.delivery import AppDelivery
from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.state import Channel, Json, Team

USES = 5
LIFE_S = 30 * 60


@dataclass
class ResponseUrl:
    """Whom and what an interaction's answers reach."""

    channel: Channel
    user_id: str
    made_at: float
    message_ts: str | None
    is_ephemeral: bool
    uses: int = 0


class ResponseUrls:
    """All response_urls that were given out."""

    def __init__(self, team: Team, delivery: AppDelivery) -> None:
        self.base_url = ""
        self._team = team
        self._delivery = delivery
        self._hooks: dict[str, ResponseUrl] = {}

    def url(self, channel: Channel, user_id: str, message: Json | None = None) -> str:
        """A new response_url; `message` is the one that was acted upon."""
        self._forget_old()
        key = secrets.token_urlsafe(18)
        ts = None if message is None else message["ts"]
        ephemeral = bool(message and message.get("ephemeral"))
        self._hooks[key] = ResponseUrl(channel, user_id, self._team.clock(), ts, ephemeral)
        return f"{self.base_url}/actions/{self._team.id}/{key}"

    def _forget_old(self) -> None:
        """Long expired ones are unknown, so that they don't pile up; the dict is in the order of their making."""
        while self._hooks:
            oldest = next(iter(self._hooks))
            if self._team.clock() - self._hooks[oldest].made_at < 2 * LIFE_S:
                return
            del self._hooks[oldest]

    def use(self, key: str, answer: Json) -> None:
        """The app posts to a response_url; raises SlackError (`used_url`, `expired_url`, a malformed message)."""
        hook = self._hooks.get(key)
        if hook is None:
            raise SlackError("no_service", status=404)
        if self._team.clock() - hook.made_at > LIFE_S:
            raise SlackError("expired_url", status=404)
        if hook.uses >= USES:
            raise SlackError("used_url", status=404)
        self.respond(hook.channel, hook.user_id, answer, hook)
        hook.uses += 1

    def respond(self, channel: Channel, user_id: str, answer: Json, hook: ResponseUrl | None = None) -> None:
        """Show an answer: ephemeral unless it says in_channel, or in place of the original."""
        if answer.get("delete_original"):
            self._delete(hook)
            return
        posting.check(answer)
        content = posting.content_of(answer)
        if answer.get("replace_original") and hook is not None and hook.message_ts is not None:
            self._replace(hook, hook.message_ts, content)
            return
        message = posting.from_app(self._team, content)
        if answer.get("thread_ts"):
            message["thread_ts"] = answer["thread_ts"]
        if answer.get("response_type") == "in_channel":
            posting.send(self._team, self._delivery, channel, message)
        else:
            self._team.whisper(channel, user_id, message)

    def _delete(self, hook: ResponseUrl | None) -> None:
        if hook is None or hook.message_ts is None:
            return
        if hook.is_ephemeral:
            self._team.unwhisper(hook.channel, hook.user_id, hook.message_ts)
        elif hook.message_ts in hook.channel.messages:
            posting.delete(self._team, self._delivery, hook.channel, hook.message_ts)

    def _replace(self, hook: ResponseUrl, ts: str, content: Json) -> None:
        if hook.is_ephemeral:
            before = hook.channel.ephemerals.get(hook.user_id, {}).get(ts, {})
            kept = {"thread_ts": before["thread_ts"]} if "thread_ts" in before else {}
            self._team.whisper(hook.channel, hook.user_id, posting.from_app(self._team, {**content, **kept, "ts": ts}))
        elif ts in hook.channel.messages:
            fresh = {"blocks": None, "attachments": None, **content}
            posting.rewrite(self._team, self._delivery, hook.channel, ts, fresh)
