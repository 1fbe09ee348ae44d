"""What a failed call to Slack means: wait, look for the message, repeat, send only text, or tell an administrator."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import aiohttp
from slack_sdk.errors import SlackApiError, SlackClientError

SLACK_FAILURES = (SlackClientError, aiohttp.ClientError, OSError)
"""What a call raises that Slack refuses, or that gets no answer in time."""

Kind = Literal[
    "rate_limited",  # 429: the method must wait
    "unknown",  # done or not: look for the message before sending it again
    "not_sent",  # certainly not done: try again
    "content_refused",  # Slack doesn't take the blocks: send only text
    "deleted",  # the message or its thread was deleted
    "channel_unavailable",  # the channel doesn't take it, which an administrator can change
    "app_refused",  # the token or a scope is wrong, which an administrator can change
]

_CONTENT_REFUSED = {
    "invalid_blocks", "invalid_blocks_format", "invalid_attachments", "msg_too_long", "msg_blocks_too_long",
    "too_many_attachments", "no_text", "metadata_too_large", "invalid_metadata_format", "markdown_text_conflict",
    "attachment_payload_limit_exceeded", "block_mismatch", "invalid_arguments", "invalid_array_arg",
}  # fmt: skip
_DELETED = {"message_not_found", "thread_not_found", "invalid_thread_ts", "cannot_reply_to_message"}
_APP_REFUSED = {
    "not_authed", "invalid_auth", "account_inactive", "token_revoked", "token_expired", "no_permission",
    "missing_scope", "not_allowed_token_type", "org_login_required", "ekm_access_denied", "access_denied",
    "team_access_not_granted", "two_factor_setup_required", "team_added_to_org",
}  # fmt: skip
_UNKNOWN = {"internal_error", "fatal_error", "request_timeout"}
_NOT_SENT = {"service_unavailable", "message_limit_exceeded"}

SENTENCES = {
    "not_in_channel": "The bot is not in channel {channel}; invite it there with /invite.",
    "channel_not_found": "Channel {channel} does not exist, or it is private and the bot is not in it; invite the bot "
    "or correct the id in [[channel]].",
    "is_archived": "Channel {channel} is archived; unarchive it or take it out of the settings.",
    "missing_scope": "The Slack app lacks the scope {needed}; reinstall it from manifest.yml.",
    "edit_window_closed": "Slack lets nobody change older messages here, so {channel} shows what is no longer true; an "
    "owner of the workspace can allow it (Settings > Permissions > Message Editing).",
    "file_deleting_disabled": "Slack lets nobody delete files here, and a report in {channel} must go; delete it as an "
    "owner of the workspace.",
    "user_not_found": "There is no Slack user {channel} any more; unlink them.",
    "cannot_dm_bot": "{channel} is a bot and can't be sent a direct message; unlink it.",
}


@dataclass(frozen=True)
class DeliveryError:
    """A failed call. `message` is a sentence for an administrator, `wait_s` what Slack asked for with a 429."""

    kind: Kind
    code: str
    message: str
    wait_s: float = 0.0

    @property
    def is_temporary(self) -> bool:
        """Whether it makes sense to try again soon."""
        return self.kind in ("rate_limited", "unknown", "not_sent")


def classify(error: Exception, channel: str = "") -> DeliveryError:
    """What an exception of a call to Slack means; raises it again if it is none of Slack's or the network's."""
    if isinstance(error, SlackApiError):
        return _classify_answer(error.response, channel)
    if isinstance(error, aiohttp.ClientConnectorError):
        return DeliveryError("not_sent", "unreachable", f"Slack can't be reached ({error}); check the network.")
    if isinstance(error, SLACK_FAILURES):
        return DeliveryError(
            "unknown", "no_answer", f"Slack gave no answer ({type(error).__name__}); it is tried again."
        )
    raise error


def classify_upload(error: DeliveryError, channel: str) -> DeliveryError:
    """What the same error means for the upload of a file, whose message is already posted and stays as it is."""
    is_of_files = error.kind in ("content_refused", "channel_unavailable") and error.code not in SENTENCES
    if not is_of_files and error.code != "missing_scope":
        return error
    where = f" in {channel}" if channel else ""
    sentence = (
        f"Slack refuses files{where} ({error.code}), so long reports show only their first lines; give the app "
        "files:write and reinstall it from manifest.yml, or let an owner of the workspace allow uploads."
    )
    return DeliveryError("app_refused" if error.kind == "app_refused" else "channel_unavailable", error.code, sentence)


def classify_connection(error: Exception) -> DeliveryError:
    """What the same error means for Socket Mode, which has a token of its own."""
    failure = classify(error)
    if failure.kind != "app_refused":
        return failure
    cure = "make an app-level token with connections:write, put it into [slack] app_token, and switch Socket Mode on"
    return replace(failure, message=f"Slack refuses the app token ({failure.code}); {cure}.")


def _classify_answer(response: Any, channel: str) -> DeliveryError:
    status = int(getattr(response, "status_code", 0) or getattr(response, "status", 0) or 0)
    data = getattr(response, "data", None)
    body = data if isinstance(data, dict) else {}
    code = str(body.get("error") or f"http_{status}")
    if status == 429 or code in ("ratelimited", "rate_limited"):
        return DeliveryError("rate_limited", "ratelimited", "Slack holds us back (429).", _retry_after_s(response))
    if code.startswith("http_") or code in _UNKNOWN:
        return DeliveryError("unknown", code, f"Slack answered {code}; it is tried again.")
    return DeliveryError(_kind(code), code, _sentence(code, channel, body))


def _kind(code: str) -> Kind:
    if code in _CONTENT_REFUSED:
        return "content_refused"
    if code in _DELETED:
        return "deleted"
    if code in _APP_REFUSED:
        return "app_refused"
    return "not_sent" if code in _NOT_SENT else "channel_unavailable"


def _sentence(code: str, channel: str, body: dict[str, Any]) -> str:
    if code in SENTENCES:
        return SENTENCES[code].format(channel=channel, needed=body.get("needed", "it needs"))
    if code in _APP_REFUSED:
        return f"Slack refuses the bot's token ({code}); put a valid one into [slack] bot_token and restart."
    return f"Slack refuses {f'messages to {channel}' if channel else 'what the bot asks'} ({code})."


def headers_of(response: Any) -> dict[str, str]:
    """The headers of Slack's answer, by their names in lower case."""
    headers = getattr(response, "headers", None) or {}
    return {str(name).lower(): str(value) for name, value in headers.items()}


def _retry_after_s(response: Any) -> float:
    try:
        return max(1.0, float(headers_of(response).get("retry-after", "")))
    except ValueError:
        return 30.0  # what Slack advises where the header is missing
