"""`files.*`."""

from bot.slack_emulator import posting
from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.state import Json
from bot.slack_emulator.web_api.calls import Args, WebApi


def files_get_upload_url(api: WebApi, args: Args) -> Json:
    stored = api.files.request_upload(args.need("filename"), args.number("length", 0), api.team.bot_user_id)
    return {"upload_url": f"{api.url}/upload/v1/{stored.key}", "file_id": stored.id}


def files_delete(api: WebApi, args: Args) -> Json:
    api.files.delete(args.need("file"))
    return {}


def files_complete_upload(api: WebApi, args: Args) -> Json:
    files = args.parsed("files")
    if not isinstance(files, list) or not files or not all(isinstance(item, dict) for item in files):
        raise SlackError("invalid_arguments")
    named = str(args.get("channel_id") or args.get("channels") or "")
    channels = [api.member_channel(item.strip()) for item in named.split(",") if item.strip()]
    stored = [api.files.complete_upload(str(item.get("id")), item.get("title")) for item in files]
    shown = [api.files.to_json(item.id) for item in stored]
    for channel in channels:
        content: Json = {"text": str(args.get("initial_comment") or ""), "files": shown}
        if args.get("thread_ts"):
            content["thread_ts"] = str(args.get("thread_ts"))
        message = posting.from_app(api.team, {**content, "upload": True})
        posting.send(api.team, api.delivery, channel, message)
    return {"files": shown}
