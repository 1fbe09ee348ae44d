"""`/responder template`: the modal that creates a case template, and what is submitted with it."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bot.block_kit import ids, modals, notices
from bot.block_kit.text import context, foreign, foreign_plain, section
from bot.features.base import Ack, Command, Context, Entry, Feature, Json
from bot.features.payload import view_of
from bot.features.responses import require_permission
from bot.message import Block
from core.common.errors import ResponderBotError
from core.common.words import count, some_of
from core.models import SEVERITY_NAMES, TLP_NAMES, CaseTemplate

LEVELS = [(str(n), name) for n, name in enumerate(TLP_NAMES)]
SEVERITIES = [(str(n), SEVERITY_NAMES[n]) for n in range(1, 5)]
TITLE = "New case template"
MOST_NAMED = 10  # custom fields


async def on_template_command(context: Context) -> None:
    """Open the modal."""
    require_permission(context, "manageCaseTemplate")
    await context.show_modal(template_view())


async def on_template_view(context: Context) -> Json:
    """Create the template, or show each error at its field."""
    view = view_of(context)
    filled = parse_submission(view)
    if filled.errors:
        return modals.errors(filled.errors)
    try:
        created = await context.core.create_case_template(filled.body)
    except ResponderBotError as error:
        return _core_error(error, view)
    return modals.update(created_view(created))


def _core_error(error: ResponderBotError, view: modals.View) -> Json:
    """Core's error at the field that it is about; a name that is taken at the name."""
    if error.code not in ("exists", "invalid_fields"):
        return modals.problem(notices.sentence(error))
    if error.code == "exists" or not error.fields:
        return modals.errors({"name": error.message})
    return modals.errors(errors_by_block(error.fields, modals.labels(view)))


# --- the modal ------------------------------------------------------------------------------------------------------


def template_view() -> dict[str, Any]:
    """The modal; its block ids are the names of core's fields."""
    blocks: list[Block] = [
        modals.text_field("name", "Name", optional=False, hint="Unique among case templates."),
        modals.text_field("displayName", "Display name"),
        modals.text_field("titlePrefix", "Title prefix", hint="Stands before the title of each case made from it."),
        modals.text_field("description", "Description", multiline=True),
        modals.choice_field("severity", "Severity", SEVERITIES, "2"),
        modals.choice_field("tlp", "TLP", LEVELS, "2"),
        modals.choice_field("pap", "PAP", LEVELS, "2"),
        modals.text_field("tags", "Tags", hint="Separated by commas."),
        modals.text_field(
            "tasks",
            "Tasks",
            multiline=True,
            placeholder="Isolate the host | containment | Ask its owner first",
            hint="One in each line: title | group | description. Only the title is needed.",
        ),
        modals.text_field(
            "customFields",
            "Custom fields",
            multiline=True,
            placeholder="cost | integer | 42",
            hint=f"One in each line: name | kind | value. Kinds: {', '.join(_PARSERS)}; string unless you name one.",
        ),
    ]
    return modals.modal(TITLE, blocks, callback_id=ids.TEMPLATE_VIEW, submit="Create")


# --- the submission -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Submission:
    """The body for core, and errors by block id."""

    body: Mapping[str, Any]
    errors: Mapping[str, str]


def parse_submission(view: Mapping[str, Any]) -> Submission:
    """The case template that was typed into the modal."""
    typed = modals.values(view)
    errors: dict[str, str] = {}
    body: dict[str, Any] = {
        key: typed.get(key, "").strip() for key in ("name", "displayName", "titlePrefix", "description")
    }
    body["titlePrefix"] = typed.get("titlePrefix", "")  # core keeps its blanks
    body |= {key: int(typed[key]) if typed.get(key, "").isdecimal() else 2 for key in ("severity", "tlp", "pap")}
    body["tags"] = [tag.strip() for tag in typed.get("tags", "").replace("\n", ",").split(",") if tag.strip()]
    body["tasks"] = _tasks(typed.get("tasks", ""), errors)
    body["customFields"] = _custom_fields(typed.get("customFields", ""), errors)
    return Submission(body, errors)


def _tasks(text: str, errors: dict[str, str]) -> list[dict[str, Any]]:
    tasks = []
    for order, line in enumerate(filter(str.strip, text.splitlines())):
        title, group, description = _parts(line)
        if not title:
            errors["tasks"] = f"The line {foreign_plain(line, 60)!r} has no title before the first |."
        tasks.append({"order": order, "title": title, "group": group or "default", "description": description})
    return tasks


def _custom_fields(text: str, errors: dict[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for order, line in enumerate(filter(str.strip, text.splitlines()), 1):
        name, kind, value = _parts(line)
        kind = kind.lower() or "string"
        problem = ""
        if not name:
            problem = "it has no name before the first |"
        elif name in fields:
            problem = f"there is a custom field {foreign_plain(name, 60)!r} already"
        elif kind not in _PARSERS:
            problem = f"the kind is one of {', '.join(_PARSERS)}"
        else:
            try:
                fields[name] = {kind: _PARSERS[kind](value) if value else None, "order": order}
            except (ValueError, KeyError, OverflowError):
                problem = _HINTS[kind]
        if problem:
            errors["customFields"] = f"In the line {foreign_plain(line, 60)!r}: {problem}."
    return fields


def _parts(line: str) -> tuple[str, str, str]:
    """The parts of a line that bars separate; the last one may contain bars."""
    first, second, third = [part.strip() for part in (*line.split("|", 2), "", "")][:3]
    return first, second, third


def _boolean(text: str) -> bool:
    return {"true": True, "yes": True, "false": False, "no": False}[text.lower()]


def _date(text: str) -> int:
    """Milliseconds since the epoch, from an ISO date or digits."""
    if text.isdigit():
        return int(text)
    date = datetime.fromisoformat(text)
    return int((date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() * 1000)


def _float(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("not in JSON")
    return number


_PARSERS: Mapping[str, Any] = {"string": str, "integer": int, "float": _float, "boolean": _boolean, "date": _date}
_HINTS = {
    "integer": "write a whole number, such as 42",
    "float": "write a number, such as 0.5",
    "boolean": "write true or false",
    "date": "write a date, such as 2025-12-31",
}


def errors_by_block(fields: Sequence[Mapping[str, Any]], shown: Collection[str]) -> dict[str, str]:
    """Core's errors by block id: `tasks[3].title` at `tasks`, and at the name what has no field here."""
    by_block: dict[str, str] = {}
    for field in fields:
        name = str(field.get("name") or "")
        root = name.partition(".")[0].partition("[")[0]
        block_id = root if root in shown else "name"
        message = str(field.get("message") or field.get("type") or "This is not accepted.")
        text = "This is needed." if message == "MissingAttributeError" else message
        if name != block_id:
            text = f"{name}: {text}"
        by_block[block_id] = f"{by_block[block_id]} {text}" if block_id in by_block else text
    return by_block


def created_view(template: CaseTemplate) -> dict[str, Any]:
    about = f"Case template *{foreign(template.name, 200)}* ({template.id}) was created, with "
    kinds = [(name, next(kind for kind in _PARSERS if kind in of)) for name, of in template.custom_fields.items()]
    fields = some_of([f"{foreign(name, 60)} ({kind})" for name, kind in kinds], MOST_NAMED)
    about += f"{count(len(template.tasks), 'task')} and {count(len(kinds), 'custom field')}{fields and f': {fields}'}."
    blocks = [section(about), context("Use it: Make a case on a card, or `/responder case` and the id of an alert.")]
    return modals.modal("Template created", blocks, callback_id=ids.NOTICE_VIEW)


FEATURE = Feature(
    commands={
        "template": Command(
            Entry(on_template_command, modal_title=TITLE), "template", "make a case template", "manageCaseTemplate"
        )
    },
    views={ids.TEMPLATE_VIEW: Entry(on_template_view, Ack.RESPONSE)},
)
