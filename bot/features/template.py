"""`/responder template`: a case template by a modal, or from JSON."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from bot.cards import ids, template, views
from bot.cards.template import Draft
from bot.features.answers import clicked, need
from bot.features.base import Ack, Command, Context, Entry, Feature, Json
from core.common.errors import ResponderBotError

USAGE = "template"
TOO_LONG = 200_000  # characters of JSON; core's own limit is 1 MiB


async def on_template_command(moment: Context) -> None:
    """Opens the modal."""
    need(moment, "manageCaseTemplate", "create case templates")
    await moment.show(template.template_view(Draft()))


async def on_template_button(moment: Context) -> None:
    """A task or a custom field comes or goes; what was typed stays, since block ids stay."""
    view = _view(moment)
    draft = Draft.from_text(str(view.get("private_metadata") or ""))
    action_id = str(clicked(moment).get("action_id"))
    _, _, suffix = action_id.partition(":")
    number = int(suffix) if suffix.isdigit() else -1
    changes: Mapping[str, Callable[[], Draft]] = {
        ids.TEMPLATE_ADD_TASK: draft.with_task,
        ids.TEMPLATE_ADD_FIELD: draft.with_field,
        ids.TEMPLATE_REMOVE_TASK: lambda: draft.without_task(number),
        ids.TEMPLATE_REMOVE_FIELD: lambda: draft.without_field(number),
    }
    changed = changes[ids.family(action_id)]()
    await moment.tools.slack.views_update(
        view_id=str(view.get("id")), hash=str(view.get("hash") or ""), view=template.template_view(changed)
    )


async def on_template_json_button(moment: Context) -> None:
    """Opens the modal for JSON above this one."""
    await moment.tools.slack.views_push(trigger_id=moment.trigger_id, view=template.json_view())


async def on_template_view(moment: Context) -> Json:
    """Creates it; an error stands at the field where it was made."""
    view = _view(moment)
    filled = template.parse_submission(view)
    if filled.errors:
        return views.errors(filled.errors)
    shown = [str(block.get("block_id")) for block in view.get("blocks") or []]
    return await _create(moment, filled.body, filled.places, shown)


async def on_template_json_view(moment: Context) -> Json:
    """Shows what the JSON holds, before it is created."""
    view = _view(moment)
    try:
        text, url = await _json_text(moment, view)
        return views.update(template.check_view(_body(text), text=text, file_url=url))
    except ResponderBotError as error:
        return views.errors({"json": error.message})


async def on_template_check_view(moment: Context) -> Json:
    """Creates what was shown."""
    view = _view(moment)
    url = str(_metadata(view).get("file") or "")
    try:
        text = await _downloaded(moment, url) if url else views.values(view).get("json", "")
        return await _create(moment, _body(text), {}, [] if url else ["json"])
    except ResponderBotError as error:
        return views.problem(error.message) if url else views.errors({"json": error.message})


async def _create(moment: Context, body: Mapping[str, Any], places: Mapping[str, str], shown: list[str]) -> Json:
    try:
        created = await moment.core.create_case_template(body)
    except ResponderBotError as error:
        return _refused(error, places, shown)
    return views.update(template.created_view(created))


def _refused(error: ResponderBotError, places: Mapping[str, str], shown: list[str]) -> Json:
    """An error of core at the right field: a taken name at the name."""
    if error.code not in ("exists", "invalid_fields") or not shown:
        return views.problem(error.message)
    at = "name" if "name" in shown else shown[0]
    if error.code == "exists" or not error.fields:
        return views.errors({at: error.message})
    found = template.core_errors(error.fields, places, shown)
    return views.errors({block if block in shown else at: text for block, text in found.items()})


async def _json_text(moment: Context, view: Mapping[str, Any]) -> tuple[str, str]:
    """The JSON and, where it came as a file, the file's address."""
    uploaded = views.files(view, "file")
    if uploaded:
        url = str(uploaded[0].get("url_private") or "")
        return await _downloaded(moment, url), url
    text = views.values(view).get("json", "")
    if not text.strip():
        raise ResponderBotError("bad_request", "Paste the JSON here, or upload a file.")
    return text, ""


async def _downloaded(moment: Context, url: str) -> str:
    data = await moment.tools.download(url)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ResponderBotError("bad_request", "The file is not UTF-8 text.") from error


def _body(text: str) -> Mapping[str, Any]:
    """The template in the text. Raises "bad_request" saying where the JSON breaks."""
    if len(text) > TOO_LONG:
        raise ResponderBotError("too_large", f"The JSON has {len(text)} characters; at most {TOO_LONG} are taken.")
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ResponderBotError("bad_request", "The JSON is nested too deeply.") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise ResponderBotError("bad_request", f"This is no JSON: {error.msg} at {where}.") from error
    except ValueError as error:
        raise ResponderBotError("bad_request", f"This is no JSON: {error}.") from error
    if not isinstance(found, dict):
        raise ResponderBotError("bad_request", 'A template is a JSON object, such as {"name": "Phishing"}.')
    return found


def _view(moment: Context) -> Mapping[str, Any]:
    view = moment.payload.get("view")
    return view if isinstance(view, Mapping) else {}


def _metadata(view: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        found = json.loads(str(view.get("private_metadata") or "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


FEATURE = Feature(
    commands={
        "template": Command(
            Entry(on_template_command, opens=template.TITLE), USAGE, "make a case template", "manageCaseTemplate"
        )
    },
    actions={
        ids.TEMPLATE_ADD_TASK: Entry(on_template_button),
        ids.TEMPLATE_REMOVE_TASK: Entry(on_template_button),
        ids.TEMPLATE_ADD_FIELD: Entry(on_template_button),
        ids.TEMPLATE_REMOVE_FIELD: Entry(on_template_button),
        ids.TEMPLATE_FROM_JSON: Entry(on_template_json_button),
    },
    views={
        ids.TEMPLATE_VIEW: Entry(on_template_view, Ack.ANSWER),
        ids.TEMPLATE_JSON_VIEW: Entry(on_template_json_view, Ack.ANSWER),
        ids.TEMPLATE_CHECK_VIEW: Entry(on_template_check_view, Ack.ANSWER),
    },
)
