"""`conversations.*`."""

from collections.abc import Iterable
from typing import Any

from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.state import Channel, Json, is_root
from bot.slack_emulator.web_api.calls import Args, WebApi

PAGE_SIZE = 100


PAGE_LIMIT = 999


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


def users_conversations(api: WebApi, args: Args) -> Json:
    """The channels that the bot is in; those of others are not supported."""
    bot = api.team.bot_user_id
    if args.get("user") not in (None, "", bot):
        raise SlackError("user_not_found")
    return _listed(api, args, [channel for channel in api.team.visible_channels(bot) if bot in channel.members])


def _listed(api: WebApi, args: Args, visible: Iterable[Channel]) -> Json:
    types = str(args.get("types") or "public_channel").split(",")
    by_type = {"public_channel": "channel", "private_channel": "group", "im": "im", "mpim": "mpim"}
    kinds = {by_type.get(word.strip(), "") for word in types}
    for kind in kinds & {"channel", "group", "im"}:
        api.require({"channel": "channels:read", "group": "groups:read", "im": "im:read"}[kind])
    listed = [c for c in visible if c.kind in kinds]
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


def _readable(api: WebApi, args: Args) -> Channel:
    channel = api.member_channel(args.need("channel"))
    api.require(f"{channel.scope_prefix}:history")
    return channel


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


def _with_metadata(api: WebApi, messages: list[Json], args: Args) -> list[Json]:
    if args.flag("include_all_metadata") and api.manifest.has_scope("metadata.message:read"):
        return messages
    return [{key: value for key, value in m.items() if key != "metadata"} for m in messages]
