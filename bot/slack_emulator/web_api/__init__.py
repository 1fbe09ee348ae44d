"""Web API methods.

To add a method, write one function in the module of its family and add one line to `METHODS`: function, rate limit
tier, required scope.
"""

from collections.abc import Callable
from dataclasses import dataclass

from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.state import Json
from bot.slack_emulator.web_api import app, conversations, files, messages, users, views
from bot.slack_emulator.web_api.calls import Args, Tokens, WebApi

__all__ = ["METHODS", "Tokens", "WebApi", "call"]


@dataclass(frozen=True)
class Method:
    """A Web API method."""

    run: Callable[[WebApi, Args], Json]
    tier: int | None
    scope: str | None = None
    token: str | None = "bot"  # noqa: S105  # the kind of token: bot, app, or None for no token at all


METHODS: dict[str, Method] = {
    "auth.test": Method(app.auth_test, None),
    "apps.connections.open": Method(app.apps_connections_open, 1, token="app"),  # noqa: S106  # a kind of token
    "bots.info": Method(app.bots_info, 3, "users:read"),
    "chat.postMessage": Method(messages.chat_post_message, None, "chat:write"),
    "chat.update": Method(messages.chat_update, 3, "chat:write"),
    "chat.delete": Method(messages.chat_delete, 3, "chat:write"),
    "chat.postEphemeral": Method(messages.chat_post_ephemeral, 4, "chat:write"),
    "conversations.info": Method(conversations.conversations_info, 3),
    "conversations.members": Method(conversations.conversations_members, 4),
    "conversations.open": Method(conversations.conversations_open, 3, "im:write"),
    "conversations.history": Method(conversations.conversations_history, 3),
    "conversations.replies": Method(conversations.conversations_replies, 3),
    "users.conversations": Method(conversations.users_conversations, 3),
    "users.info": Method(users.users_info, 4, "users:read"),
    "views.open": Method(views.views_open, 4),
    "views.push": Method(views.views_push, 4),
    "views.update": Method(views.views_update, 4),
    "views.publish": Method(views.views_publish, 4),
    "files.getUploadURLExternal": Method(files.files_get_upload_url, 4, "files:write"),
    "files.delete": Method(files.files_delete, 3, "files:write"),
    "files.completeUploadExternal": Method(files.files_complete_upload, 4, "files:write"),
}


def call(api: WebApi, name: str, token: str | None, values: Json) -> Json:
    """Run a method. Raises SlackError."""
    method = METHODS.get(name)
    if method is None:
        raise SlackError("unknown_method", req_method=name)
    _check_token(api, method, token)
    if method.scope is not None:
        api.require(method.scope)
    if method.tier is not None:
        api.rates.count_call(name, method.tier)
    return {"ok": True, **method.run(api, Args(values))}


def _check_token(api: WebApi, method: "Method", token: str | None) -> None:
    if method.token is None:
        return
    if not token:
        raise SlackError("not_authed")
    if token not in (api.bot_token, api.app_token):
        raise SlackError("invalid_auth")
    if api.tokens.revoked:
        raise SlackError("token_revoked")
    if token != (api.app_token if method.token == "app" else api.bot_token):  # noqa: S105  # kinds of token
        raise SlackError("not_allowed_token_type")
