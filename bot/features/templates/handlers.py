"""`/responder template`: create a case template in a modal, or from JSON."""

import json
from collections.abc import Mapping
from typing import Any

import aiohttp
from slack_sdk.errors import SlackClientError

from bot.block_kit import ids, modals, notices
from bot.features.base import Ack, Command, Context, Entry, Feature, Json
from bot.features.payload import view_metadata, view_of
from bot.features.responses import require_permission
from bot.features.templates import views
from core.common.errors import ResponderBotError

USAGE = "template"
MAX_LENGTH = 200_000  # characters of JSON; core's own limit is 1 MiB


async def on_template_command(context: Context) -> None:
    """Open the modal."""
    require_permission(context, "manageCaseTemplate")
    await context.show_modal(views.template_view())


async def on_template_json_button(context: Context) -> None:
    """Push the modal for JSON onto this one."""
    await context.services.slack.views_push(trigger_id=context.trigger_id, view=views.json_view())


async def on_template_view(context: Context) -> Json | None:
    """Create the template, or show each error at its field."""
    view = view_of(context)
    filled = views.parse_submission(view)
    if filled.errors:
        return modals.errors(filled.errors)
    shown = [str(block.get("block_id")) for block in view.get("blocks") or []]
    return await _create(context, filled.body, shown)


async def on_template_json_view(context: Context) -> Json:
    """Show what the JSON contains, before it is created."""
    view = view_of(context)
    try:
        text, url = await _json_text(context, view)
        return modals.update(views.check_view(_parse(text), text=text, file_url=url))
    except ResponderBotError as error:
        return modals.errors({"json": error.message})


async def on_template_check_view(context: Context) -> Json | None:
    """Create the template that was shown."""
    view = view_of(context)
    url = str(view_metadata(view).get("file") or "")
    try:
        text = await _download(context, url) if url else modals.values(view).get("json", "")
        return await _create(context, _parse(text), [] if url else ["json"])
    except ResponderBotError as error:
        return modals.problem(error.message) if url else modals.errors({"json": error.message})


async def _create(context: Context, body: Mapping[str, Any], shown: list[str]) -> Json | None:
    try:
        created = await context.core.create_case_template(body)
    except ResponderBotError as error:
        return _core_error(error, shown)
    result = views.created_view(created)
    root = str(view_of(context).get("root_view_id") or "")
    if root in ("", str(view_of(context).get("id"))):
        return modals.update(result)
    # The form lies below: it becomes the answer, and this view closes.
    try:
        await context.services.slack.views_update(view_id=root, view=result)
    except (SlackClientError, aiohttp.ClientError, TimeoutError, OSError):
        return modals.update(result)
    return None


def _core_error(error: ResponderBotError, shown: list[str]) -> Json:
    """Core's error at the field that it is about; a name that is taken at the name."""
    if error.code not in ("exists", "invalid_fields") or not shown:
        return modals.problem(notices.sentence(error))
    fallback = "name" if "name" in shown else shown[0]
    if error.code == "exists" or not error.fields:
        return modals.errors({fallback: error.message})
    by_block = views.errors_by_block(error.fields, shown)
    return modals.errors({block if block in shown else fallback: text for block, text in by_block.items()})


async def _json_text(context: Context, view: Mapping[str, Any]) -> tuple[str, str]:
    """The JSON and, if it was uploaded, the URL of the file. Raises ResponderBotError."""
    uploaded = modals.files(view, "file")
    if uploaded:
        url = str(uploaded[0].get("url_private") or "")
        return await _download(context, url), url
    text = modals.values(view).get("json", "")
    if not text.strip():
        raise ResponderBotError("bad_request", "Paste the JSON here, or upload a file.")
    return text, ""


async def _download(context: Context, url: str) -> str:
    data = await context.services.download(url)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ResponderBotError("bad_request", "The file is not UTF-8 text.") from error


def _parse(text: str) -> Mapping[str, Any]:
    """Parse the JSON of a template.

    Raises ResponderBotError: "bad_request" saying where the JSON is wrong, or "too_large".
    """
    if len(text) > MAX_LENGTH:
        raise ResponderBotError("too_large", f"The JSON has {len(text)} characters; at most {MAX_LENGTH} are taken.")
    try:
        body = json.loads(text)
    except RecursionError as error:
        raise ResponderBotError("bad_request", "The JSON is nested too deeply.") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ResponderBotError("bad_request", f"This is not valid JSON: {error.msg} at {where}.") from error
    except ValueError as error:
        raise ResponderBotError("bad_request", f"This is not valid JSON: {error}.") from error
    if not isinstance(body, dict):
        raise ResponderBotError("bad_request", 'A template is a JSON object, such as {"name": "Phishing"}.')
    return body


FEATURE = Feature(
    commands={
        "template": Command(
            Entry(on_template_command, modal_title=views.TITLE), USAGE, "make a case template", "manageCaseTemplate"
        )
    },
    actions={
        ids.TEMPLATE_FROM_JSON: Entry(on_template_json_button),
    },
    views={
        ids.TEMPLATE_VIEW: Entry(on_template_view, Ack.RESPONSE),
        ids.TEMPLATE_JSON_VIEW: Entry(on_template_json_view, Ack.RESPONSE),
        ids.TEMPLATE_CHECK_VIEW: Entry(on_template_check_view, Ack.RESPONSE),
    },
)
