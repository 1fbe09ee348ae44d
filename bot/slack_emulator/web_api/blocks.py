"""`blocks.validate`."""

import re

from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.limits import Surface, problems
from bot.slack_emulator.state import Json
from bot.slack_emulator.web_api.calls import Args, WebApi

_PROBLEM = re.compile(r"(?P<message>.*) \[json-pointer:(?P<pointer>[^\]]*)\]", re.DOTALL)


def blocks_validate(_api: WebApi, args: Args) -> Json:
    """Check blocks, a message or a view, without showing them (docs.slack.dev, blocks.validate)."""
    names = [name for name in ("blocks", "message", "view") if args.get(name) is not None]
    if len(names) != 1:
        raise _refused("must provide exactly one of: blocks, message, view")
    (name,) = names
    value = args.parsed(name)
    payload = {"blocks": value} if name == "blocks" else value
    if not isinstance(payload, dict):
        raise _refused(f"must provide an object [json-pointer:/{name}]")
    surface: Surface = "message" if name != "view" else "home" if payload.get("type") == "home" else "modal"
    if faults := problems(surface, payload):
        raise SlackError(f"invalid_{name}", errors=[_error(problem, name) for problem in faults])
    return {}


def _refused(message: str) -> SlackError:
    return SlackError("invalid_arguments", response_metadata={"messages": [f"[ERROR] {message}"]})


def _error(problem: str, name: str) -> Json:
    match = _PROBLEM.fullmatch(problem)
    message, pointer = (match["message"], match["pointer"]) if match else (problem, "")
    return {"pointer": pointer.removeprefix(f"/{name}"), "code": "failed_constraint", "message": message}
