"""The modal of a case template: every field of `interface.md 2.3`, any number of tasks, custom fields; and back."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from bot.cards import ids, views
from bot.cards.message import Block
from bot.cards.text import bare, code, context, count, foreign, plain, section
from core.models import SEVERITY_NAMES, TLP_NAMES, CaseTemplate

OPEN_TASKS = 12  # 5 blocks each; a view takes 100 (slack.md 1)
OPEN_FIELDS = 5  # 5 blocks each
KINDS = ("string", "integer", "float", "boolean", "date")
LEVELS = [(str(n), name) for n, name in enumerate(TLP_NAMES)]
SEVERITIES = [(str(n), SEVERITY_NAMES[n]) for n in range(1, 5)]
MORE_TASKS = "more_tasks"
MORE_FIELDS = "more_fields"
TITLE = "New case template"


@dataclass(frozen=True)
class Draft:
    """Which tasks and custom fields the modal shows, by number; what is typed is in Slack, by block id."""

    tasks: tuple[int, ...] = (0,)
    fields: tuple[int, ...] = ()
    next: int = 1

    def to_text(self) -> str:
        return json.dumps({"tasks": self.tasks, "fields": self.fields, "next": self.next})

    @staticmethod
    def from_text(text: str) -> "Draft":
        try:
            raw = json.loads(text)
            return Draft(tuple(map(int, raw["tasks"])), tuple(map(int, raw["fields"])), int(raw["next"]))
        except (ValueError, TypeError, KeyError):
            return Draft()

    def with_task(self) -> "Draft":
        if len(self.tasks) >= OPEN_TASKS:
            return self
        return replace(self, tasks=(*self.tasks, self.next), next=self.next + 1)

    def without_task(self, number: int) -> "Draft":
        return replace(self, tasks=tuple(n for n in self.tasks if n != number))

    def with_field(self) -> "Draft":
        if len(self.fields) >= OPEN_FIELDS:
            return self
        return replace(self, fields=(*self.fields, self.next), next=self.next + 1)

    def without_field(self, number: int) -> "Draft":
        return replace(self, fields=tuple(n for n in self.fields if n != number))


def template_view(draft: Draft) -> dict[str, Any]:
    """The modal; block ids stay the same while tasks come and go, so that Slack keeps what is typed."""
    blocks: list[Block] = [*_head()]
    for place, number in enumerate(draft.tasks, start=1):
        blocks += _task(number, place)
    if len(draft.tasks) < OPEN_TASKS:
        blocks.append(_button("Add a task", ids.TEMPLATE_ADD_TASK))
    else:
        hint = "One task in each line: title | group | order | description"
        blocks.append(views.text_field(MORE_TASKS, "More tasks", multiline=True, hint=hint))
    for place, number in enumerate(draft.fields, start=1):
        blocks += _field(number, place)
    if len(draft.fields) < OPEN_FIELDS:
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


def _task(number: int, place: int) -> list[Block]:
    at = f"task:{number}"
    return [
        _removable(f"*Task {place}*", f"{at}:head", ids.TEMPLATE_REMOVE_TASK, number),
        views.text_field(f"{at}:title", "Title", hint="A task without a title is left out."),
        views.text_field(f"{at}:group", "Group", placeholder="default"),
        views.text_field(f"{at}:order", "Order", placeholder=str(place - 1)),
        views.text_field(f"{at}:description", "Description", multiline=True),
    ]


def _field(number: int, place: int) -> list[Block]:
    at = f"field:{number}"
    kinds = [(kind, kind) for kind in KINDS]
    return [
        _removable(f"*Custom field {place}*", f"{at}:head", ids.TEMPLATE_REMOVE_FIELD, number),
        views.text_field(f"{at}:name", "Name"),
        views.choice_field(f"{at}:kind", "Kind", kinds, "string"),
        views.text_field(f"{at}:value", "Value", hint="Empty: none. A boolean is true or false, a date 2025-12-31."),
        views.text_field(f"{at}:order", "Order", placeholder=str(place)),
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


# --- what was typed, as core wants it -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Submission:
    """The body for core, errors found here by block id, and where each of the body's fields was typed."""

    body: Mapping[str, Any]
    errors: Mapping[str, str]
    places: Mapping[str, str]  # `tasks[0].title` -> block id


def parse_submission(view: Mapping[str, Any]) -> Submission:
    """The template that was typed into the modal."""
    typed = views.values(view)
    draft = Draft.from_text(str(view.get("private_metadata") or ""))
    errors: dict[str, str] = {}
    places: dict[str, str] = {}
    body: dict[str, Any] = {
        key: typed.get(key, "").strip() for key in ("name", "displayName", "titlePrefix", "description")
    }
    body["titlePrefix"] = typed.get("titlePrefix", "")  # stored verbatim, blanks and all (semantics.md 3)
    body |= {key: int(typed[key]) if typed.get(key, "").isdecimal() else 2 for key in ("severity", "tlp", "pap")}
    body["tags"] = [tag.strip() for tag in typed.get("tags", "").replace("\n", ",").split(",") if tag.strip()]
    body["tasks"] = _tasks(draft, typed, errors, places)
    body["customFields"] = _custom_fields(draft, typed, errors, places)
    return Submission(body, errors, places)


def _tasks(
    draft: Draft, typed: Mapping[str, str], errors: dict[str, str], places: dict[str, str]
) -> list[dict[str, Any]]:
    tasks: list[dict[str, Any]] = []
    for number in draft.tasks:
        at = f"task:{number}"
        if not typed.get(f"{at}:title", "").strip():
            if any(typed.get(f"{at}:{key}", "").strip() for key in ("group", "order", "description")):
                errors[f"{at}:title"] = "A task needs a title; remove the task, or name it."
            continue
        index = len(tasks)
        places |= {f"tasks[{index}].{key}": f"{at}:{key}" for key in ("title", "group", "order", "description")}
        order = _integer(typed.get(f"{at}:order", ""), index, f"{at}:order", errors)
        tasks.append(_task_body(typed[f"{at}:title"], typed.get(f"{at}:group"), order, typed.get(f"{at}:description")))
    for line in typed.get(MORE_TASKS, "").splitlines():
        if line.strip():
            places |= {f"tasks[{len(tasks)}].{key}": MORE_TASKS for key in ("title", "group", "order", "description")}
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
        errors[MORE_TASKS] = f"The line {bare(line, 60)!r} has no title before the first |."
    return _task_body(title or "-", group, _integer(order, index, MORE_TASKS, errors), description)


def _custom_fields(
    draft: Draft, typed: Mapping[str, str], errors: dict[str, str], places: dict[str, str]
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
            errors[f"{at}:name"] = f"There is a custom field {bare(name, 60)!r} already."
            continue
        value = _custom_value(kind, typed.get(f"{at}:value", "").strip(), f"{at}:value", errors)
        order = _integer(typed.get(f"{at}:order", ""), len(fields) + 1, f"{at}:order", errors)
        fields[name] = {kind: value, "order": order}
        places |= {f"customFields.{name}": f"{at}:name", f"customFields.{name}.{kind}": f"{at}:value"}
        places[f"customFields.{name}.order"] = f"{at}:order"
    for line in filter(str.strip, typed.get(MORE_FIELDS, "").splitlines()):
        _field_line(line, fields, errors, places)
    return fields


def _field_line(line: str, fields: dict[str, Any], errors: dict[str, str], places: dict[str, str]) -> None:
    """`name | kind | value | order`, of which only the name is needed."""
    name, kind, value, order = [part.strip() for part in (*line.split("|", 3), "", "", "")][:4]
    kind = kind.lower() or "string"
    if not name or name in fields:
        wrong = f"there is a custom field {bare(name, 60)!r} already" if name else "it has no name before the first |"
        errors[MORE_FIELDS] = f"In the line {bare(line, 60)!r}: {wrong}."
    elif kind not in KINDS:
        errors[MORE_FIELDS] = f"In the line {bare(line, 60)!r}: the kind is one of {', '.join(KINDS)}."
    else:
        made = _custom_value(kind, value, MORE_FIELDS, errors)
        fields[name] = {kind: made, "order": _integer(order, len(fields) + 1, MORE_FIELDS, errors)}
        places |= {f"customFields.{name}{part}": MORE_FIELDS for part in ("", f".{kind}", ".order")}


def _integer(text: str, default: int, block_id: str, errors: dict[str, str]) -> int:
    if not text.strip():
        return default
    try:
        number = int(text)
    except ValueError:
        number = 2**40
    if abs(number) < 2**31:
        return number
    errors[block_id] = "This must be a whole number, such as 1."
    return default


def _custom_value(kind: str, text: str, block_id: str, errors: dict[str, str]) -> Any:
    """The value of its kind; null where nothing was typed."""
    if not text:
        return None
    try:
        return _PARSERS[kind](text)
    except (ValueError, KeyError, OverflowError):
        errors[block_id] = f"This is no {kind}; {_EXAMPLES.get(kind, 'leave it empty')} is one."
        return None


def _boolean(text: str) -> bool:
    return {"true": True, "yes": True, "false": False, "no": False}[text.lower()]


def _date(text: str) -> int:
    """Milliseconds since the epoch, from a day or from digits."""
    if text.isdigit():
        return int(text)
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _float(text: str) -> float:
    number = float(text)
    if number != number or number in (float("inf"), float("-inf")):
        raise ValueError("not in JSON")
    return number


_PARSERS: Mapping[str, Any] = {"string": str, "integer": int, "float": _float, "boolean": _boolean, "date": _date}
_EXAMPLES = {"integer": "42", "float": "0.5", "boolean": "true", "date": "2025-12-31"}


def core_errors(fields: Sequence[Mapping[str, Any]], places: Mapping[str, str], shown: Sequence[str]) -> dict[str, str]:
    """Errors of core at the fields where they were typed; what has no field goes to the name."""
    found: dict[str, str] = {}
    for field in fields:
        name = str(field.get("name") or "")
        block_id = places.get(name) or _nearest_place(name, places, shown)
        words = str(field.get("message") or field.get("type") or "This is not accepted.")
        missing = words == "MissingAttributeError"
        text = "This is needed." if missing else words if block_id == name or name in places else f"{name}: {words}"
        found[block_id] = f"{found[block_id]} {text}" if block_id in found else text
    return found


def _nearest_place(name: str, places: Mapping[str, str], shown: Sequence[str]) -> str:
    """`tags[3]` belongs to `tags`."""
    for known in sorted(places, key=len, reverse=True):
        if name.startswith(known):
            return places[known]
    root = name.partition(".")[0].partition("[")[0]
    return root if root in shown else "name"


# --- from JSON ------------------------------------------------------------------------------------------------------


def json_view() -> dict[str, Any]:
    """Paste, or upload, the JSON of a template as `interface.md 4.3` has it."""
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
    """What would be created, before it is: the parts in words, and the text itself while it fits."""
    blocks: list[Block] = [section(line) for line in describe(body)]
    if not file_url:
        blocks.append(views.text_field("json", "JSON", multiline=True, initial=text, optional=False))
    metadata = json.dumps({"file": file_url})
    return views.modal(
        "Create this?", blocks, callback_id=ids.TEMPLATE_CHECK_VIEW, submit="Create", metadata=metadata, close="Back"
    )


def describe(body: Mapping[str, Any]) -> list[str]:
    """A template's body in a few lines; every value in it is foreign, of any type."""
    tasks = body.get("tasks") if isinstance(body.get("tasks"), list) else []
    fields = body.get("customFields") if isinstance(body.get("customFields"), Mapping) else {}
    tags = body.get("tags") if isinstance(body.get("tags"), list) else []
    head = f"*{foreign(str(body.get('name') or '(no name)'), 200)}*\n{foreign(str(body.get('description') or ''), 500)}"
    levels = ", ".join(f"{key} {foreign(str(body.get(key, 2)), 20)}" for key in ("severity", "tlp", "pap"))
    lines = [head.rstrip(), levels]
    if tags:
        lines.append("Tags " + " ".join(code(str(tag), 60) for tag in tags[:20]))
    if tasks:
        shown = [f"• {foreign(_title(task), 150)}" for task in tasks[:15]]
        left = [f"and {len(tasks) - 15} more"] if len(tasks) > 15 else []
        lines.append("\n".join([f"*{count(len(tasks), 'task')}*", *shown, *left]))
    if fields:
        lines.append("Custom fields " + ", ".join(foreign(str(name), 60) for name in list(fields)[:20]))
    return lines


def _title(task: Any) -> str:
    return str(task.get("title") or "(no title)") if isinstance(task, Mapping) else str(task)


def created_view(template: CaseTemplate) -> dict[str, Any]:
    """That it is there now, with its id."""
    about = f"Case template *{foreign(template.name, 200)}* ({template.id}) was created, with "
    about += f"{count(len(template.tasks), 'task')} and {count(len(template.custom_fields), 'custom field')}."
    blocks = [section(about), context("Use it: name it as `template` when a case is made.")]
    return views.modal("Template created", blocks, callback_id=ids.NOTICE_VIEW)
