"""The modal that creates a case template, and what is submitted with it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from bot.cards import ids, views
from bot.cards.message import Block
from bot.cards.text import code, context, count, foreign, foreign_plain, plain, section
from core.models import SEVERITY_NAMES, TLP_NAMES, CaseTemplate

MAX_TASKS = 12  # with fields of their own: 5 blocks each, of the 100 that a view takes
MAX_FIELDS = 5  # 5 blocks each
FIELD_KINDS = ("string", "integer", "float", "boolean", "date")
LEVELS = [(str(n), name) for n, name in enumerate(TLP_NAMES)]
SEVERITIES = [(str(n), SEVERITY_NAMES[n]) for n in range(1, 5)]
MORE_TASKS = "more_tasks"
MORE_FIELDS = "more_fields"
TITLE = "New case template"


@dataclass(frozen=True)
class Draft:
    """The numbers of the tasks and custom fields that the modal shows. What is typed stays in Slack, by block id."""

    tasks: tuple[int, ...] = (0,)
    fields: tuple[int, ...] = ()
    next: int = 1

    def to_text(self) -> str:
        return json.dumps({"tasks": self.tasks, "fields": self.fields, "next": self.next})

    @staticmethod
    def from_text(text: str) -> "Draft":
        """What `to_text` wrote; an empty draft for any other text."""
        try:
            raw = json.loads(text)
            return Draft(tuple(map(int, raw["tasks"])), tuple(map(int, raw["fields"])), int(raw["next"]))
        except (ValueError, TypeError, KeyError):
            return Draft()

    def with_task(self) -> "Draft":
        """The draft with one more task; unchanged at MAX_TASKS."""
        if len(self.tasks) >= MAX_TASKS:
            return self
        return replace(self, tasks=(*self.tasks, self.next), next=self.next + 1)

    def without_task(self, number: int) -> "Draft":
        return replace(self, tasks=tuple(n for n in self.tasks if n != number))

    def with_field(self) -> "Draft":
        """The draft with one more custom field; unchanged at MAX_FIELDS."""
        if len(self.fields) >= MAX_FIELDS:
            return self
        return replace(self, fields=(*self.fields, self.next), next=self.next + 1)

    def without_field(self, number: int) -> "Draft":
        return replace(self, fields=tuple(n for n in self.fields if n != number))


def template_view(draft: Draft) -> dict[str, Any]:
    """The modal. A task keeps its block ids while others come and go, so that Slack keeps what is typed."""
    blocks: list[Block] = [*_head()]
    for position, number in enumerate(draft.tasks, start=1):
        blocks += _task(number, position)
    if len(draft.tasks) < MAX_TASKS:
        blocks.append(_button("Add a task", ids.TEMPLATE_ADD_TASK))
    else:
        hint = "One task in each line: title | group | order | description"
        blocks.append(views.text_field(MORE_TASKS, "More tasks", multiline=True, hint=hint))
    for position, number in enumerate(draft.fields, start=1):
        blocks += _field(number, position)
    if len(draft.fields) < MAX_FIELDS:
        blocks.append(_button("Add a custom field", ids.TEMPLATE_ADD_FIELD))
    else:
        hint = "One custom field in each line: name | kind | value | order"
        blocks.append(views.text_field(MORE_FIELDS, "More custom fields", multiline=True, hint=hint))
    return views.modal(
        TITLE,
        blocks,
        callback_id=ids.TEMPLATE_VIEW,
        submit="Create",
        metadata=draft.to_text(),
        close="Cancel",
    )


def _head() -> list[Block]:
    return [
        _button("From JSON instead", ids.TEMPLATE_FROM_JSON),
        views.text_field("name", "Name", optional=False, hint="Unique among case templates."),
        views.text_field("displayName", "Display name"),
        views.text_field("titlePrefix", "Title prefix", hint="Stands before the title of each case made from it."),
        views.text_field("description", "Description", multiline=True),
        views.choice_field("severity", "Severity", SEVERITIES, "2"),
        views.choice_field("tlp", "TLP", LEVELS, "2"),
        views.choice_field("pap", "PAP", LEVELS, "2"),
        views.text_field("tags", "Tags", hint="Separated by commas."),
    ]


def _task(number: int, position: int) -> list[Block]:
    at = f"task:{number}"
    return [
        _removable(f"*Task {position}*", f"{at}:head", ids.TEMPLATE_REMOVE_TASK, number),
        views.text_field(f"{at}:title", "Title", hint="A task without a title is left out."),
        views.text_field(f"{at}:group", "Group", placeholder="default"),
        views.text_field(f"{at}:order", "Order", placeholder=str(position - 1)),
        views.text_field(f"{at}:description", "Description", multiline=True),
    ]


def _field(number: int, position: int) -> list[Block]:
    at = f"field:{number}"
    kinds = [(kind, kind) for kind in FIELD_KINDS]
    return [
        _removable(f"*Custom field {position}*", f"{at}:head", ids.TEMPLATE_REMOVE_FIELD, number),
        views.text_field(f"{at}:name", "Name"),
        views.choice_field(f"{at}:kind", "Kind", kinds, "string"),
        views.text_field(f"{at}:value", "Value", hint="Empty: none. A boolean is true or false, a date 2025-12-31."),
        views.text_field(f"{at}:order", "Order", placeholder=str(position)),
    ]


def _removable(text: str, block_id: str, action_id: str, number: int) -> Block:
    remove = {"type": "button", "action_id": ids.numbered(action_id, str(number)), "text": plain("Remove")}
    return section(text, block_id=block_id, accessory={**remove, "value": str(number)})


def _button(words: str, action_id: str) -> Block:
    return {
        "type": "actions",
        "block_id": f"{action_id}:block",
        "elements": [{"type": "button", "action_id": action_id, "text": plain(words)}],
    }


# --- the submission -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Submission:
    """The body for core, errors by block id, and the block id of each field of the body."""

    body: Mapping[str, Any]
    errors: Mapping[str, str]
    block_ids: Mapping[str, str]  # by field, such as `tasks[0].title`


def parse_submission(view: Mapping[str, Any]) -> Submission:
    """The case template that was typed into the modal."""
    typed = views.values(view)
    draft = Draft.from_text(str(view.get("private_metadata") or ""))
    errors: dict[str, str] = {}
    block_ids: dict[str, str] = {}
    body: dict[str, Any] = {
        key: typed.get(key, "").strip() for key in ("name", "displayName", "titlePrefix", "description")
    }
    body["titlePrefix"] = typed.get("titlePrefix", "")  # core keeps its blanks
    body |= {key: int(typed[key]) if typed.get(key, "").isdecimal() else 2 for key in ("severity", "tlp", "pap")}
    body["tags"] = [tag.strip() for tag in typed.get("tags", "").replace("\n", ",").split(",") if tag.strip()]
    body["tasks"] = _tasks(draft, typed, errors, block_ids)
    body["customFields"] = _custom_fields(draft, typed, errors, block_ids)
    return Submission(body, errors, block_ids)


def _tasks(
    draft: Draft, typed: Mapping[str, str], errors: dict[str, str], block_ids: dict[str, str]
) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = []
    for number in draft.tasks:
        at = f"task:{number}"
        if not typed.get(f"{at}:title", "").strip():
            if any(typed.get(f"{at}:{key}", "").strip() for key in ("group", "order", "description")):
                errors[f"{at}:title"] = "A task needs a title; remove the task, or name it."
            continue
        index = len(tasks)
        block_ids |= {f"tasks[{index}].{key}": f"{at}:{key}" for key in ("title", "group", "order", "description")}
        order = _integer(typed.get(f"{at}:order", ""), index, f"{at}:order", errors)
        tasks.append(_task_body(typed[f"{at}:title"], typed.get(f"{at}:group"), order, typed.get(f"{at}:description")))
    for line in typed.get(MORE_TASKS, "").splitlines():
        if line.strip():
            block_ids |= {
                f"tasks[{len(tasks)}].{key}": MORE_TASKS for key in ("title", "group", "order", "description")
            }
            tasks.append(_task_line(line, len(tasks), errors))
    return tasks


def _task_body(title: str, group: str | None, order: int, description: str | None) -> dict[str, Any]:
    return {
        "order": order,
        "title": title.strip(),
        "group": (group or "").strip() or "default",
        "description": (description or "").strip(),
    }


def _task_line(line: str, index: int, errors: dict[str, str]) -> dict[str, Any]:
    title, group, order, description = [part.strip() for part in (*line.split("|", 3), "", "", "")][:4]
    if not title:
        errors[MORE_TASKS] = f"The line {foreign_plain(line, 60)!r} has no title before the first |."
    return _task_body(title or "-", group, _integer(order, index, MORE_TASKS, errors), description)


def _custom_fields(
    draft: Draft, typed: Mapping[str, str], errors: dict[str, str], block_ids: dict[str, str]
) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for number in draft.fields:
        at = f"field:{number}"
        name, kind = typed.get(f"{at}:name", "").strip(), typed.get(f"{at}:kind") or "string"
        if not name:
            if typed.get(f"{at}:value", "").strip():
                errors[f"{at}:name"] = "A custom field needs a name; remove the field, or name it."
            continue
        if name in fields:
            errors[f"{at}:name"] = f"There is a custom field {foreign_plain(name, 60)!r} already."
            continue
        value = _custom_value(kind, typed.get(f"{at}:value", "").strip(), f"{at}:value", errors)
        order = _integer(typed.get(f"{at}:order", ""), len(fields) + 1, f"{at}:order", errors)
        fields[name] = {kind: value, "order": order}
        block_ids |= {f"customFields.{name}": f"{at}:name", f"customFields.{name}.{kind}": f"{at}:value"}
        block_ids[f"customFields.{name}.order"] = f"{at}:order"
    for line in filter(str.strip, typed.get(MORE_FIELDS, "").splitlines()):
        _field_line(line, fields, errors, block_ids)
    return fields


def _field_line(line: str, fields: dict[str, Any], errors: dict[str, str], block_ids: dict[str, str]) -> None:
    """Read `name | kind | value | order`, of which only the name is required."""
    name, kind, value, order = [part.strip() for part in (*line.split("|", 3), "", "", "")][:4]
    kind = kind.lower() or "string"
    if not name or name in fields:
        wrong = (
            f"there is a custom field {foreign_plain(name, 60)!r} already"
            if name
            else "it has no name before the first |"
        )
        errors[MORE_FIELDS] = f"In the line {foreign_plain(line, 60)!r}: {wrong}."
    elif kind not in FIELD_KINDS:
        errors[MORE_FIELDS] = f"In the line {foreign_plain(line, 60)!r}: the kind is one of {', '.join(FIELD_KINDS)}."
    else:
        made = _custom_value(kind, value, MORE_FIELDS, errors)
        fields[name] = {kind: made, "order": _integer(order, len(fields) + 1, MORE_FIELDS, errors)}
        block_ids |= {f"customFields.{name}{part}": MORE_FIELDS for part in ("", f".{kind}", ".order")}


def _integer(text: str, default: int, block_id: str, errors: dict[str, str]) -> int:
    if not text.strip():
        return default
    try:
        number = int(text)
    except ValueError:
        number = 2**40
    if abs(number) < 2**31:
        return number
    errors[block_id] = "Enter a whole number, such as 1."
    return default


def _custom_value(kind: str, text: str, block_id: str, errors: dict[str, str]) -> Any:
    """The value of its kind; None if nothing was typed."""
    if not text:
        return None
    try:
        return _PARSERS[kind](text)
    except (ValueError, KeyError, OverflowError):
        errors[block_id] = _HINTS.get(kind, "Leave this empty.")
        return None


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
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError("not in JSON")
    return number


_PARSERS: Mapping[str, Any] = {"string": str, "integer": int, "float": _float, "boolean": _boolean, "date": _date}
_HINTS = {
    "integer": "Enter a whole number, such as 42.",
    "float": "Enter a number, such as 0.5.",
    "boolean": "Enter true or false.",
    "date": "Enter a date, such as 2025-12-31.",
}


def place_errors(
    fields: Sequence[Mapping[str, Any]], block_ids: Mapping[str, str], shown: Sequence[str]
) -> dict[str, str]:
    """Core's errors by block id; those without a field go to the name."""
    found: dict[str, str] = {}
    for field in fields:
        name = str(field.get("name") or "")
        block_id = block_ids.get(name) or _nearest_block_id(name, block_ids, shown)
        words = str(field.get("message") or field.get("type") or "This is not accepted.")
        missing = words == "MissingAttributeError"
        text = "This is needed." if missing else words if block_id == name or name in block_ids else f"{name}: {words}"
        found[block_id] = f"{found[block_id]} {text}" if block_id in found else text
    return found


def _nearest_block_id(name: str, block_ids: Mapping[str, str], shown: Sequence[str]) -> str:
    """`tags[3]` belongs to `tags`."""
    for known in sorted(block_ids, key=len, reverse=True):
        if name.startswith(known):
            return block_ids[known]
    root = name.partition(".")[0].partition("[")[0]
    return root if root in shown else "name"


# --- from JSON ------------------------------------------------------------------------------------------------------


def json_view() -> dict[str, Any]:
    """Asks for the JSON of a case template, pasted or as a file."""
    upload = {
        "type": "input",
        "block_id": "file",
        "label": plain("A file"),
        "optional": True,
        "element": {"type": "file_input", "action_id": "value:file", "filetypes": ["json"], "max_files": 1},
    }
    blocks = [
        section("Paste the JSON of a case template, or upload it as a file. It is shown before it is created."),
        views.text_field("json", "JSON", multiline=True, placeholder='{"name": "Phishing", "tasks": [...]}'),
        upload,
    ]
    return views.modal("Template from JSON", blocks, callback_id=ids.TEMPLATE_JSON_VIEW, submit="Check", close="Back")


def check_view(body: Mapping[str, Any], *, text: str, file_url: str) -> dict[str, Any]:
    """Shows what would be created, in words and as JSON while it fits a field."""
    blocks: list[Block] = [section(line) for line in describe(body)]
    if not file_url:
        blocks.append(views.text_field("json", "JSON", multiline=True, initial=text, optional=False))
    metadata = json.dumps({"file": file_url})
    return views.modal(
        "Create this?", blocks, callback_id=ids.TEMPLATE_CHECK_VIEW, submit="Create", metadata=metadata, close="Back"
    )


def describe(body: Mapping[str, Any]) -> list[str]:
    """A template in a few lines; its values are foreign and may be of any type."""
    tasks = body.get("tasks") if isinstance(body.get("tasks"), list) else []
    fields = body.get("customFields") if isinstance(body.get("customFields"), Mapping) else {}
    tags = body.get("tags") if isinstance(body.get("tags"), list) else []
    head = f"*{foreign(str(body.get('name') or '(no name)'), 200)}*\n{foreign(str(body.get('description') or ''), 500)}"
    lines = [head.rstrip(), ", ".join(_level(key, body.get(key, 2)) for key in ("severity", "tlp", "pap"))]
    if tags:
        lines.append("Tags " + " ".join(code(str(tag), 60) for tag in tags[:20]))
    if tasks:
        titles = [str(t.get("title") or "(no title)") if isinstance(t, Mapping) else str(t) for t in tasks[:15]]
        shown = [f"• {foreign(title, 150)}" for title in titles]
        left = [f"and {len(tasks) - 15} more"] if len(tasks) > 15 else []
        lines.append("\n".join([f"*{count(len(tasks), 'task')}*", *shown, *left]))
    if fields:
        lines.append("Custom fields " + ", ".join(foreign(str(name), 60) for name in list(fields)[:20]))
    return lines


def _level(key: str, value: object) -> str:
    """`High`, `TLP:AMBER`; what is no level as it is, since core says what is wrong with it."""
    names = SEVERITY_NAMES if key == "severity" else TLP_NAMES
    if not isinstance(value, int) or value not in range(len(names)) or not names[value]:
        return f"{key} {foreign(str(value), 20)}"
    return names[value].capitalize() if key == "severity" else f"{key.upper()}:{names[value].upper()}"


def created_view(template: CaseTemplate) -> dict[str, Any]:
    """Says that the template was created."""
    about = f"Case template *{foreign(template.name, 200)}* ({template.id}) was created, with "
    about += f"{count(len(template.tasks), 'task')} and {count(len(template.custom_fields), 'custom field')}."
    blocks = [section(about), context("Use it: Make a case on a card, or `/responder case` and the id of an alert.")]
    return views.modal("Template created", blocks, callback_id=ids.NOTICE_VIEW)
