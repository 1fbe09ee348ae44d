"""Web API methods.

To add a method, write one function and add one line to `METHODS`: function, rate limit tier, required scope.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bot.slack_emulator import posting
from bot.slack_emulator.delivery import AppDelivery
from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.files import Files
from bot.slack_emulator.manifest import Manifest
from bot.slack_emulator.rates import RateLimits
from bot.slack_emulator.socket_mode import SocketMode
from bot.slack_emulator.state import Channel, Json, Team, User, is_root
from bot.slack_emulator.user_actions import UserActions, add_reaction
from bot.slack_emulator.views import Views

PAGE_SIZE = 100
PAGE_LIMIT = 999


@dataclass
class Tokens:
    """State of the app's tokens."""

    revoked: bool = False


@dataclass(frozen=True)
class WebApi:
    """Services that the methods use."""

    url: str
    team: Team
    manifest: Manifest
    delivery: AppDelivery
    views: Views
    files: Files
    user_actions: UserActions
    rates: RateLimits
    socket: SocketMode
    bot_token: str
    app_token: str
    tokens: "Tokens"

    def require(self, scope: str) -> None:
        """Raise `missing_scope` unless the manifest has this scope."""
        if not self.manifest.has_scope(scope):
            raise SlackError("missing_scope", needed=scope, provided=",".join(self.manifest.scopes))

    def member_channel(self, channel_id: Any) -> Channel:
        """A channel that the bot is a member of. Raises `channel_not_found` or `not_in_channel`."""
        channel = self.known_channel(channel_id)
        if self.team.bot_user_id not in channel.members:
            raise SlackError("not_in_channel")
        return channel

    def known_channel(self, channel_id: Any) -> Channel:
        """A channel visible to the bot. Raises `channel_not_found`, also for private channels of others."""
        channel = self.team.channel(str(channel_id))
        if not channel.is_visible_to(self.team.bot_user_id):
            raise SlackError("channel_not_found")
        return channel


@dataclass(frozen=True)
class Args:
    """Arguments of a call, from a form or JSON."""

    values: Json

    def get(self, name: str) -> Any:
        return self.values.get(name)

    def need(self, name: str) -> str:
        """A required string. Raises `invalid_arguments`."""
        value = self.values.get(name)
        if value in (None, ""):
            messages = [f"[ERROR] missing required field: {name}"]
            raise SlackError("invalid_arguments", response_metadata={"messages": messages})
        return str(value)

    def flag(self, name: str) -> bool:
        """A boolean: True, "true" or "1"."""
        return str(self.values.get(name, "")).lower() in ("true", "1")

    def number(self, name: str, default: int) -> int:
        value = self.values.get(name)
        if value in (None, ""):
            return default
        try:
            return int(str(value))
        except ValueError:
            raise SlackError("invalid_arguments") from None

    def parsed(self, name: str, refusal: str = "invalid_arguments") -> Any:
        """A JSON value; in a form it is sent as text."""
        value = self.values.get(name)
        if not isinstance(value, str):
            return value
        if not value:
            return None
        try:
            return json.loads(value)
        except ValueError:
            raise SlackError(refusal) from None


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


# app


def api_test(api: WebApi, args: Args) -> Json:
    if args.get("error"):
        raise SlackError(str(args.get("error")), args=args.values)
    return {"args": args.values}


def auth_test(api: WebApi, args: Args) -> Json:
    team = api.team
    return {
        "url": f"{api.url}/",
        "team": team.name,
        "user": team.users[team.bot_user_id].name,
        "team_id": team.id,
        "user_id": team.bot_user_id,
        "bot_id": team.bot_id,
        "app_id": team.app_id,
        "is_enterprise_install": False,
    }


def apps_connections_open(api: WebApi, args: Args) -> Json:
    address = api.url.replace("http://", "ws://")
    return {"url": f"{address}/link/?ticket={api.socket.issue_ticket()}&app_id={api.team.app_id}"}


# messages


def _target(api: WebApi, named: str) -> Channel:
    """Target channel by id or name, or a user's direct messages by user id."""
    if named in api.team.users and named != api.team.bot_user_id:
        return api.team.open_dm(api.team.bot_user_id, named)
    by_name = (c for c in api.team.channels.values() if not c.is_im and c.name == named.removeprefix("#"))
    found = next(by_name, None)
    return api.known_channel(named if found is None else found.id)


def _content(args: Args) -> Json:
    content = {"text": args.get("text")}
    content["blocks"] = args.parsed("blocks", "invalid_blocks_format")
    content["attachments"] = args.parsed("attachments", "invalid_attachments")
    content["metadata"] = args.parsed("metadata", "invalid_metadata_format")
    return {key: value for key, value in content.items() if value is not None}


def _open_channel(api: WebApi, args: Args) -> Channel:
    channel = _target(api, args.need("channel"))
    public = channel.kind == "channel" and api.manifest.tree is not None and api.manifest.has_scope("chat:write.public")
    if api.team.bot_user_id not in channel.members and not public:
        raise SlackError("not_in_channel")
    if channel.is_archived:
        raise SlackError("is_archived")
    return channel


def chat_post_message(api: WebApi, args: Args) -> Json:
    channel = _open_channel(api, args)
    content = _content(args)
    posting.check(content)
    thread_ts = args.get("thread_ts")
    if thread_ts and str(thread_ts) not in channel.messages:
        raise SlackError("thread_not_found")
    api.rates.count_message(channel.id)
    message = posting.from_app(api.team, posting.content_of(content))
    if thread_ts:
        message["thread_ts"] = channel.messages[str(thread_ts)].get("thread_ts", str(thread_ts))
    if thread_ts and args.flag("reply_broadcast"):
        message["subtype"] = "thread_broadcast"
    posting.send(api.team, api.delivery, channel, message)
    return {"channel": channel.id, "ts": message["ts"], "message": message}


def _own_message(api: WebApi, args: Args, refusal: str) -> tuple[Channel, Json]:
    channel = api.known_channel(args.need("channel"))
    message = channel.messages.get(args.need("ts"))
    if message is None or message.get("subtype") == "tombstone":
        raise SlackError("message_not_found")
    if message.get("user") != api.team.bot_user_id:
        raise SlackError(refusal)
    if channel.is_archived:
        raise SlackError("is_archived")
    return channel, message


def chat_update(api: WebApi, args: Args) -> Json:
    channel, message = _own_message(api, args, "cant_update_message")
    given = _content(args)
    posting.check(given, text_limit=posting.TEXT_OF_UPDATE)
    content = posting.content_of(given)
    # omitted fields stay; an empty list removes them (docs.slack.dev, chat.update)
    cleared = {key: None for key in ("blocks", "attachments") if given.get(key) == []}
    if "text" not in given:
        content["text"] = message["text"]
    changed = posting.update(api.team, api.delivery, channel, message["ts"], {**content, **cleared})
    return {"channel": channel.id, "ts": message["ts"], "text": changed["text"], "message": changed}


def chat_delete(api: WebApi, args: Args) -> Json:
    channel, message = _own_message(api, args, "cant_delete_message")
    posting.delete(api.team, api.delivery, channel, message["ts"])
    return {"channel": channel.id, "ts": message["ts"]}


def chat_post_ephemeral(api: WebApi, args: Args) -> Json:
    channel = _open_channel(api, args)
    user_id = args.need("user")
    if user_id not in channel.members:
        raise SlackError("user_not_in_channel")
    content = _content(args)
    posting.check(content)
    message = posting.from_app(api.team, posting.content_of(content))
    if args.get("thread_ts"):
        message["thread_ts"] = str(args.get("thread_ts"))
    api.team.post_ephemeral(channel, user_id, message)
    return {"message_ts": message["ts"]}


def chat_get_permalink(api: WebApi, args: Args) -> Json:
    channel = api.known_channel(args.need("channel"))
    ts = args.need("message_ts")
    if ts not in channel.messages:
        raise SlackError("message_not_found")
    address = f"{api.url}/archives/{channel.id}/p{ts.replace('.', '')}"
    thread_ts = channel.messages[ts].get("thread_ts")
    suffix = f"?thread_ts={thread_ts}&cid={channel.id}" if thread_ts and thread_ts != ts else ""
    return {"channel": channel.id, "permalink": address + suffix}


def reactions_add(api: WebApi, args: Args) -> Json:
    channel = api.member_channel(args.need("channel"))
    message = channel.messages.get(args.need("timestamp"))
    if message is None:
        raise SlackError("message_not_found")
    add_reaction(api.team, channel, message, api.team.bot_user_id, args.need("name"))
    return {}


# channels


def _shown_channel(api: WebApi, channel: Channel) -> Json:
    shown: Json = {
        "id": channel.id,
        "created": channel.created,
        "is_channel": channel.kind == "channel",
        "is_group": channel.kind == "group",
        "is_im": channel.is_im,
        "is_mpim": False,
        "is_private": channel.is_private,
        "is_archived": channel.is_archived,
        "is_shared": channel.is_shared,
        "is_ext_shared": channel.is_shared,
        "is_org_shared": False,
        "is_general": False,
        "context_team_id": api.team.id,
    }
    if channel.is_im:
        other = next(iter(channel.members - {api.team.bot_user_id}), api.team.bot_user_id)
        return {**shown, "user": other, "is_open": True}
    return {
        **shown,
        "name": channel.name,
        "name_normalized": channel.name,
        "is_member": api.team.bot_user_id in channel.members,
        "topic": {"value": "", "creator": "", "last_set": 0},
        "purpose": {"value": "", "creator": "", "last_set": 0},
    }


def conversations_info(api: WebApi, args: Args) -> Json:
    channel = api.known_channel(args.need("channel"))
    api.require(f"{channel.scope_prefix}:read")
    shown = _shown_channel(api, channel)
    if args.flag("include_num_members"):
        shown["num_members"] = len(channel.members)
    return {"channel": shown}


def conversations_members(api: WebApi, args: Args) -> Json:
    channel = api.known_channel(args.need("channel"))
    api.require(f"{channel.scope_prefix}:read")
    members, more = _page(sorted(channel.members), args)
    return {"members": members, **more}


def conversations_list(api: WebApi, args: Args) -> Json:
    wanted = str(args.get("types") or "public_channel").split(",")
    words = {"public_channel": "channel", "private_channel": "group", "im": "im", "mpim": "mpim"}
    kinds = {words.get(word.strip(), "") for word in wanted}
    for kind in kinds & {"channel", "group", "im"}:
        api.require({"channel": "channels:read", "group": "groups:read", "im": "im:read"}[kind])
    listed = [c for c in api.team.visible_channels(api.team.bot_user_id) if c.kind in kinds]
    if args.flag("exclude_archived"):
        listed = [c for c in listed if not c.is_archived]
    channels, more = _page([_shown_channel(api, channel) for channel in listed], args)
    return {"channels": channels, **more}


def conversations_open(api: WebApi, args: Args) -> Json:
    if args.get("channel"):
        channel = api.known_channel(args.get("channel"))
    else:
        users = [user.strip() for user in args.need("users").split(",")]
        if len(users) != 1:  # multi-person direct messages are not supported
            raise SlackError("not_enough_users" if not users else "too_many_users")
        api.team.user(users[0])
        channel = api.team.open_dm(api.team.bot_user_id, users[0])
    return {"channel": _shown_channel(api, channel) if args.flag("return_im") else {"id": channel.id}}


def conversations_join(api: WebApi, args: Args) -> Json:
    channel = api.known_channel(args.need("channel"))
    if channel.kind != "channel":
        raise SlackError("method_not_supported_for_channel_type")
    if channel.is_archived:
        raise SlackError("is_archived")
    api.user_actions.join(api.team.bot_user_id, channel)
    return {"channel": _shown_channel(api, channel)}


def _page(items: list[Any], args: Args, size: int = PAGE_SIZE) -> tuple[list[Any], Json]:
    """A page of a list, and the cursor of the next page."""
    limit = args.number("limit", size)
    if not 0 < limit <= PAGE_LIMIT + 1:
        raise SlackError("invalid_limit")
    cursor = str(args.get("cursor") or "")
    if cursor and not cursor.removeprefix("next:").isdigit():
        raise SlackError("invalid_cursor")
    start = int(cursor.removeprefix("next:") or 0)
    following = f"next:{start + limit}" if start + limit < len(items) else ""
    return items[start : start + limit], {"response_metadata": {"next_cursor": following}}


def _between(messages: list[Json], args: Args) -> list[Json]:
    oldest, latest = str(args.get("oldest") or "0"), str(args.get("latest") or "")
    if args.flag("inclusive"):
        kept = [m for m in messages if _ts_key(m["ts"]) >= _ts_key(oldest)]
        return [m for m in kept if not latest or _ts_key(m["ts"]) <= _ts_key(latest)]
    kept = [m for m in messages if _ts_key(m["ts"]) > _ts_key(oldest)]
    return [m for m in kept if not latest or _ts_key(m["ts"]) < _ts_key(latest)]


def _ts_key(ts: str) -> tuple[int, int]:
    seconds, _, micros = ts.partition(".")
    try:
        return int(seconds), int((micros + "000000")[:6])
    except ValueError:
        raise SlackError("invalid_ts_latest") from None


def _readable(api: WebApi, args: Args) -> Channel:
    channel = api.member_channel(args.need("channel"))
    api.require(f"{channel.scope_prefix}:history")
    return channel


def _with_metadata(api: WebApi, messages: list[Json], args: Args) -> list[Json]:
    if args.flag("include_all_metadata") and api.manifest.has_scope("metadata.message:read"):
        return messages
    return [{key: value for key, value in m.items() if key != "metadata"} for m in messages]


def conversations_history(api: WebApi, args: Args) -> Json:
    channel = _readable(api, args)
    newest_first = _between(channel.roots(), args)[::-1]
    messages, more = _page(newest_first, args)
    has_more = bool(more["response_metadata"]["next_cursor"])
    return {"messages": _with_metadata(api, messages, args), "has_more": has_more, "pin_count": 0, **more}


def conversations_replies(api: WebApi, args: Args) -> Json:
    channel = _readable(api, args)
    ts = args.need("ts")
    if ts not in channel.messages:
        raise SlackError("thread_not_found")
    root_ts = ts if is_root(channel.messages[ts]) else channel.messages[ts]["thread_ts"]
    thread = channel.thread(root_ts)
    messages, more = _page([thread[0], *_between(thread[1:], args)], args, size=1000)
    has_more = bool(more["response_metadata"]["next_cursor"])
    return {"messages": _with_metadata(api, messages, args), "has_more": has_more, **more}


# users


def _shown_user(api: WebApi, user: User) -> Json:
    team_id = user.team_id or api.team.id
    profile = {"real_name": user.real_name, "display_name": user.name, "team": team_id}
    if user.email and api.manifest.has_scope("users:read.email"):
        profile["email"] = user.email
    shown = {
        "id": user.id,
        "team_id": team_id,
        "name": user.name,
        "deleted": user.deleted,
        "profile": profile,
        "is_bot": user.is_bot,
        "is_app_user": False,
    }
    if user.deleted:  # Slack omits the rest for deactivated users
        return shown
    shown |= {
        "real_name": user.real_name,
        "tz": "Etc/UTC",
        "tz_offset": 0,
        "is_admin": False,
        "is_owner": False,
        "is_restricted": user.is_restricted,
        "is_ultra_restricted": user.is_ultra_restricted,
    }
    if user.is_email_confirmed is not None:
        shown["is_email_confirmed"] = user.is_email_confirmed
    if team_id != api.team.id:
        shown["is_stranger"] = True
    return shown


def users_info(api: WebApi, args: Args) -> Json:
    return {"user": _shown_user(api, api.team.user(args.need("user")))}


def users_lookup_by_email(api: WebApi, args: Args) -> Json:
    email = args.need("email").lower()
    found = next((u for u in api.team.users.values() if u.email and u.email.lower() == email), None)
    if found is None:
        raise SlackError("users_not_found")
    return {"user": _shown_user(api, found)}


# views


def _view(args: Args) -> Json:
    view = args.parsed("view")
    if not isinstance(view, dict):
        messages = ["[ERROR] missing required field: view"]
        raise SlackError("invalid_arguments", response_metadata={"messages": messages})
    return {key: value for key, value in view.items() if value is not None}


def views_open(api: WebApi, args: Args) -> Json:
    return {"view": api.views.open(args.need("trigger_id"), _view(args))}


def views_push(api: WebApi, args: Args) -> Json:
    return {"view": api.views.push(args.need("trigger_id"), _view(args))}


def views_update(api: WebApi, args: Args) -> Json:
    updated = api.views.update(args.get("view_id"), args.get("external_id"), args.get("hash"), _view(args))
    return {"view": updated}


def views_publish(api: WebApi, args: Args) -> Json:
    if not api.manifest.has_home:
        raise SlackError("not_enabled")
    return {"view": api.views.publish(args.need("user_id"), args.get("hash"), _view(args))}


# files


def files_get_upload_url(api: WebApi, args: Args) -> Json:
    stored = api.files.request_upload(args.need("filename"), args.number("length", 0), api.team.bot_user_id)
    return {"upload_url": f"{api.url}/upload/v1/{stored.key}", "file_id": stored.id}


def files_info(api: WebApi, args: Args) -> Json:
    return {"file": api.files.to_json(args.need("file"))}


def files_delete(api: WebApi, args: Args) -> Json:
    api.files.delete(args.need("file"))
    return {}


def files_complete_upload(api: WebApi, args: Args) -> Json:
    given = args.parsed("files")
    if not isinstance(given, list) or not given or not all(isinstance(one, dict) for one in given):
        raise SlackError("invalid_arguments")
    named = str(args.get("channel_id") or args.get("channels") or "")
    channels = [api.member_channel(one.strip()) for one in named.split(",") if one.strip()]
    stored = [api.files.complete_upload(str(one.get("id")), one.get("title")) for one in given]
    shown = [api.files.to_json(one.id) for one in stored]
    for channel in channels:
        content: Json = {"text": str(args.get("initial_comment") or ""), "files": shown}
        if args.get("thread_ts"):
            content["thread_ts"] = str(args.get("thread_ts"))
        message = posting.from_app(api.team, {**content, "upload": True})
        posting.send(api.team, api.delivery, channel, message)
    return {"files": shown}


@dataclass(frozen=True)
class Method:
    """A Web API method."""

    run: Callable[[WebApi, Args], Json]
    tier: int | None
    scope: str | None = None
    token: str | None = "bot"  # noqa: S105  # the kind of token: bot, app, or None for no token at all


METHODS: dict[str, Method] = {
    "api.test": Method(api_test, 4, token=None),
    "auth.test": Method(auth_test, None),
    "apps.connections.open": Method(apps_connections_open, 1, token="app"),  # noqa: S106  # a kind of token
    "chat.postMessage": Method(chat_post_message, None, "chat:write"),
    "chat.update": Method(chat_update, 3, "chat:write"),
    "chat.delete": Method(chat_delete, 3, "chat:write"),
    "chat.postEphemeral": Method(chat_post_ephemeral, 4, "chat:write"),
    "chat.getPermalink": Method(chat_get_permalink, None),
    "conversations.info": Method(conversations_info, 3),
    "conversations.members": Method(conversations_members, 4),
    "conversations.list": Method(conversations_list, 2),
    "conversations.open": Method(conversations_open, 3, "im:write"),
    "conversations.join": Method(conversations_join, 3, "channels:join"),
    "conversations.history": Method(conversations_history, 3),
    "conversations.replies": Method(conversations_replies, 3),
    "reactions.add": Method(reactions_add, 3, "reactions:write"),
    "users.info": Method(users_info, 4, "users:read"),
    "users.lookupByEmail": Method(users_lookup_by_email, 3, "users:read.email"),
    "views.open": Method(views_open, 4),
    "views.push": Method(views_push, 4),
    "views.update": Method(views_update, 4),
    "views.publish": Method(views_publish, 4),
    "files.getUploadURLExternal": Method(files_get_upload_url, 4, "files:write"),
    "files.info": Method(files_info, 4, "files:read"),
    "files.delete": Method(files_delete, 3, "files:write"),
    "files.completeUploadExternal": Method(files_complete_upload, 4, "files:write"),
}
