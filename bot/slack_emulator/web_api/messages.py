"""`chat.*`."""

from bot.slack_emulator import posting
from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.state import Channel, Json
from bot.slack_emulator.web_api.calls import Args, WebApi


def _target(api: WebApi, named: str) -> Channel:
    """Target channel by id or name, or a user's direct messages by user id."""
    if named in api.team.users and named != api.team.bot_user_id:
        return api.team.open_dm(api.team.bot_user_id, named)
    by_name = (c for c in api.team.channels.values() if not c.is_im and c.name == named.removeprefix("#"))
    user = next(by_name, None)
    return api.known_channel(named if user is None else user.id)


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


def _own_message(api: WebApi, args: Args, error_code: str) -> tuple[Channel, Json]:
    channel = api.known_channel(args.need("channel"))
    message = channel.messages.get(args.need("ts"))
    if message is None or message.get("subtype") == "tombstone":
        raise SlackError("message_not_found")
    if message.get("user") != api.team.bot_user_id:
        raise SlackError(error_code)
    if channel.is_archived:
        raise SlackError("is_archived")
    return channel, message


def chat_update(api: WebApi, args: Args) -> Json:
    channel, message = _own_message(api, args, "cant_update_message")
    desired = _content(args)
    posting.check(desired, text_limit=posting.TEXT_OF_UPDATE)
    content = posting.content_of(desired)
    # omitted fields stay; an empty list removes them (docs.slack.dev, chat.update)
    cleared = {key: None for key in ("blocks", "attachments") if desired.get(key) == []}
    if "text" not in desired:
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
