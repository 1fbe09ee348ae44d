"""Blocks. To add one, write a function and add a line to `BLOCKS`."""

from collections.abc import Mapping
from typing import Any

from bot.slack_emulator.limits.check import ANY_TEXT, PLAIN, Check, Rule
from bot.slack_emulator.limits.elements import check_element
from bot.slack_emulator.limits.objects import check_image


def _section(check: Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id text fields accessory expand")
    if b.get("text") is None and b.get("fields") is None:
        check.add(at, "must define either `text` or `fields`")
    if b.get("text") is not None:
        check.text(b["text"], f"{at}/text", 3000)
    if b.get("fields") is not None:
        for n, text in enumerate(check.items(b["fields"], f"{at}/fields", 1, 10)):
            check.text(text, f"{at}/fields/{n}", 2000)
    if b.get("accessory") is not None:
        check_element(check, b["accessory"], f"{at}/accessory", "section")


def _divider(check: Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id")


def _header(check: Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id text level")
    check.required_text(b, "text", at, 150)


def _image(check: Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id image_url slack_file alt_text title")
    check_image(check, b, at)
    check.optional_text(b, "title", at, 2000)


def _context(check: Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id elements")
    if not check.need(b, at, "elements"):
        return
    for n, element in enumerate(check.items(b["elements"], f"{at}/elements", 1, 10)):
        here = f"{at}/elements/{n}"
        if isinstance(element, Mapping) and element.get("type") in ANY_TEXT:
            check.text(element, here, 3000)
        else:
            check_element(check, element, here, "context")


def _actions(check: Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id elements")
    if not check.need(b, at, "elements"):
        return
    for n, element in enumerate(check.items(b["elements"], f"{at}/elements", 1, 25)):
        check_element(check, element, f"{at}/elements/{n}", "actions")


def _input(check: Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id label element dispatch_action hint optional")
    check.required_text(b, "label", at, 2000)
    check.optional_text(b, "hint", at, 2000)
    check.flag(b, at, "dispatch_action", "optional")
    if check.need(b, at, "element"):
        check_element(check, b["element"], f"{at}/element", "input")


RICH_TEXT_ELEMENTS = ("rich_text_section", "rich_text_list", "rich_text_preformatted", "rich_text_quote")


def _rich_text(check: Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id elements")
    if not check.need(b, at, "elements"):
        return
    for n, part in enumerate(check.items(b["elements"], f"{at}/elements", 0, 1000)):
        here = f"{at}/elements/{n}"
        if not check.mapping(part, here):
            continue
        if part.get("type") not in RICH_TEXT_ELEMENTS:
            check.add(f"{here}/type", f"unsupported type: {part.get('type')}")
        check.need(part, here, "elements")


def _video(check: Check, b: Mapping[str, Any], at: str) -> None:
    names = "title title_url description video_url alt_text thumbnail_url author_name provider_name"
    check.only(b, at, f"block_id {names} provider_icon_url")
    if check.need(b, at, "alt_text", "title", "thumbnail_url", "video_url"):
        check.text(b["title"], f"{at}/title", 200, PLAIN)
    check.optional_text(b, "description", at, 200)
    check.string(b, "author_name", at, 50)
    for name in ("title_url", "video_url", "thumbnail_url", "provider_icon_url"):
        check.url(b, name, at)


def _markdown(check: Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id text")
    if check.need(b, at, "text"):
        check.string(b, "text", at, 12_000, low=1)


def _table(check: Check, b: Mapping[str, Any], at: str) -> None:
    check.only(b, at, "block_id rows column_settings")
    if not check.need(b, at, "rows"):
        return
    for n, row in enumerate(check.items(b["rows"], f"{at}/rows", 1, 100)):
        for m, cell in enumerate(check.items(row, f"{at}/rows/{n}", 1, 20)):
            _cell(check, cell, f"{at}/rows/{n}/{m}")


def _cell(check: Check, cell: Any, at: str) -> None:
    if not check.mapping(cell, at):
        return
    if cell.get("type") not in ("raw_text", "rich_text", "raw_number"):
        check.add(f"{at}/type", f"unsupported type: {cell.get('type')}")
    elif cell["type"] == "raw_text" and check.need(cell, at, "text"):
        check.string(cell, "text", at, 3000, low=1)


# block type -> (rule, surfaces)
BLOCKS: dict[str, tuple[Rule, str]] = {
    "section": (_section, "message modal home"),
    "divider": (_divider, "message modal home"),
    "header": (_header, "message modal home"),
    "image": (_image, "message modal home"),
    "context": (_context, "message modal home"),
    "actions": (_actions, "message modal home"),
    "input": (_input, "message modal home"),
    "rich_text": (_rich_text, "message modal home"),
    "video": (_video, "message modal home"),
    "markdown": (_markdown, "message"),
    "table": (_table, "message"),
}


def check_blocks(check: Check, value: Any, at: str, high: int) -> None:
    for n, block in enumerate(check.items(value, at, 0, high)):
        here = f"{at}/{n}"
        if not check.mapping(block, here):
            continue
        kind = str(block.get("type"))
        rule, surfaces = BLOCKS.get(kind, (None, ""))
        if rule is None or check.surface not in surfaces.split():
            check.add(f"{here}/type", f"unsupported type: {kind}")
            continue
        check.unique(block, "block_id", here, check.block_ids)
        rule(check, block, here)
