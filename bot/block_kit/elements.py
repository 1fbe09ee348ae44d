"""Buttons and the blocks around them, as Slack's objects; texts are plain and ours, or cleaned already."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from bot.block_kit import ids
from bot.block_kit.text import OPTION_LIMIT, first_of, foreign_plain, plain, sections
from bot.message import Block, ButtonIds, Intent
from core.models import Person


def actions(*elements: Mapping[str, Any]) -> Block:
    """A row of buttons and menus."""
    return {"type": "actions", "elements": list(elements)}


def button_element(
    text: str,
    action_id: str,
    value: str = "",
    *,
    of: str = "",
    style: Literal["", "primary", "danger"] = "",
    confirm: Mapping[str, Any] | None = None,
    about: str = "",
) -> dict[str, Any]:
    """A button; `of` tells it from others with its action id in one message.

    `about` tells a screen reader what it is for, where others have the same text; foreign text, within the clearance.
    """
    element: dict[str, Any] = {
        "type": "button",
        "action_id": ids.numbered(action_id, of) if of else action_id,
        "text": plain(text),
    }
    label = foreign_plain(f"{text}: {about}", OPTION_LIMIT) if about else ""
    more = {"value": value, "style": style, "confirm": confirm, "accessibility_label": label}
    return element | {key: content for key, content in more.items() if content}


def overflow(action_id: str, entries: Iterable[tuple[str, Intent]], button: ButtonIds) -> dict[str, Any]:
    """The menu behind `…`: the text of each entry, and what it means."""
    options = [{"text": plain(text), "value": button(intent)} for text, intent in entries]
    return {"type": "overflow", "action_id": action_id, "options": options}


def confirmation(
    title: str, text: str, confirm: str, deny: str = "Cancel", *, style: Literal["", "danger"] = ""
) -> dict[str, Any]:
    """What Slack asks before it sends a click."""
    dialog = {"title": plain(title), "text": plain(text), "confirm": plain(confirm), "deny": plain(deny)}
    return {**dialog, "style": style} if style else dialog


def pages(action_id: str, intent: Intent, start: int, size: int, total: int, button: ButtonIds) -> list[dict[str, Any]]:
    """What leads to the pages of a list before and after the one that begins with number `start`."""
    found = [("Earlier ones", max(0, start - size), start > 0), ("More", start + size, start + size < total)]
    return [
        button_element(label, action_id, button(replace(intent, argument=f"{at} {intent.argument}".strip())), of=label)
        for label, at, is_there in found
        if is_there
    ]


READS = (ids.DETAILS, ids.MORE, ids.GROUP_ALERTS, ids.BULK_DETAILS, ids.SHOW_AGAIN, ids.HELP, ids.LINK)


def for_person(blocks: Iterable[Block], person: Person) -> tuple[Block, ...]:
    """Blocks that only this person sees: what runs, decides or changes something only if they may."""
    return tuple(blocks) if "manageAction" in person.permissions else to_read(blocks)


def to_read(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """Blocks without what runs, decides or changes something."""
    kept = list[Block]()
    for block in blocks:
        shown = {key: part for key, part in block.items() if key != "accessory" or _reads(part)}
        if "elements" in shown:
            shown["elements"] = [*filter(_reads, shown["elements"])]
        kept += [shown] if shown.get("elements", True) else []
    return tuple(kept)


def _reads(element: Mapping[str, Any]) -> bool:
    """Whether it is a text, or leads to one."""
    return ids.family(element.get("action_id", ids.LINK)) in READS


MAX_LINES = 40


def listed(head: str, lines: Sequence[str]) -> list[Block]:
    """Lines in as many sections as they need; those past MAX_LINES are only counted."""
    return sections([head, *first_of(lines, MAX_LINES)]) if lines else []


MAX_OPTIONS = 100


NOTHING = "none"  # the value of an option that only says something


def message_option(sentence: str) -> dict[str, Any]:
    """A sentence as the only entry of a menu; choosing it runs nothing."""
    return {"options": [{"text": plain(foreign_plain(sentence, OPTION_LIMIT)), "value": NOTHING}]}
