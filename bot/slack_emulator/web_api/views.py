"""`views.*`."""

from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.state import Json
from bot.slack_emulator.web_api.calls import Args, WebApi


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


def _view(args: Args) -> Json:
    view = args.parsed("view")
    if not isinstance(view, dict):
        messages = ["[ERROR] missing required field: view"]
        raise SlackError("invalid_arguments", response_metadata={"messages": messages})
    return {key: value for key, value in view.items() if value is not None}
