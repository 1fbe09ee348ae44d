"""What each payload of the app that decides on a run has to name, however it was made.

Somebody decides by a button with a dialog, or by a modal: there stand the target, how long it lasts, and who asked.
`problems` judges one payload; a fixture has the emulator pass it all of them.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bot.block_kit import ids

Json = Mapping[str, Any]

APPROVALS = (ids.APPROVE_VIEW, ids.BULK_APPROVE_VIEW)
OPENS_A_MODAL = (ids.APPROVE, ids.BULK_REVIEW)
_TARGET = re.compile(r"~\d+|[Oo]bservable|`[^`]+`")
_TIME = re.compile(
    r"\b[Ee]nds? (?:after|<!date|\d)|\b[Ll]asts (?:until|longer|as long)|takes? (?:it )?back|withheld"
    r"|button undoes it|\bIt ends\b|[Bb]y itself|[Uu]ntil somebody presses|ends it earlier|puts nothing|nothing calls"
    r"|contained (?:already|until|with)|nothing that this would end|still waits for approval: withdraw or deny it too"
    r"|\*Keep (?:until <!date|with no end)|asks to keep \*(?:for|with no end)"
)
_REQUESTER = re.compile(
    r"\*[^*]+\* ask(s|ed)\b|It ends .* by [^,]+|asked for\b|already (runs|waits)|\bby [^,]+, <!date"
)


def problems(what: str, body: Json) -> list[str]:
    """What a payload of the app lacks of that; a sentence for each modal and button."""
    return [f"{what}: {problem}" for holder in _holders(body) for problem in _of_holder(what, holder)]


def _holders(body: Any) -> Iterator[Json]:
    """The messages and views in a payload."""
    if isinstance(body, str) and body[:1] in "{[":
        body = _read(body)
    if isinstance(body, Mapping):
        if body.get("blocks"):
            yield body
        yield from _holders(body.get("view"))


def _read(text: str) -> Any:
    """The JSON of a text; nothing if it isn't any, which Slack refuses."""
    try:
        return json.loads(text)
    except ValueError:
        return []


def _of_holder(what: str, holder: Json) -> Iterator[str]:
    blocks = holder["blocks"]
    blocks = _read(blocks) if isinstance(blocks, str) else blocks
    text, callback = " ".join(_texts(blocks)), holder.get("callback_id")
    if callback in APPROVALS and holder.get("submit"):
        yield from _lacking(f"the modal {callback}", text, _TARGET, _TIME, _REQUESTER)
    if callback in (ids.EXTEND_VIEW, ids.UNDO_VIEW):
        yield from _lacking(f"the modal {callback}", text, _TARGET, _TIME, _REQUESTER)
    if callback == ids.START_VIEW and any(str(block.get("block_id")) in ("note", "override") for block in blocks):
        yield from _lacking("the form of a run", text, _TARGET, _TIME)
    if "You approved" in text and what in ("chat.postEphemeral", "response_url", "views.open"):
        yield "an approval that no modal was submitted for"
    for button in _buttons(blocks):
        family = ids.family(str(button.get("action_id")))
        dialog = " ".join(_texts(button.get("confirm") or {}))
        label = str((button.get("text") or {}).get("text"))
        if label.startswith("Approve") and not dialog and family not in OPENS_A_MODAL:
            yield f"{label} decides on the first press"


def _lacking(where: str, text: str, *patterns: re.Pattern[str]) -> Iterator[str]:
    names = {_TARGET: "target", _TIME: "time", _REQUESTER: "requester"}
    for pattern in patterns:
        if not pattern.search(text):
            yield f"{where} names no {names[pattern]}: {text[:300]}"


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key == "text" and isinstance(part, str):
                yield part
            else:
                yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)


def _buttons(blocks: Any) -> Iterator[Json]:
    for block in blocks:
        for element in [*(block.get("elements") or ()), block.get("accessory") or {}]:
            if element.get("type") == "button":
                yield element
