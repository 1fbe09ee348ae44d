"""Blocks. To add one, write a function and add a line to `BLOCKS`."""

from collections.abc import Mapping
from typing import Any

from bot.slack_emulator.limits.elements import check_element
from bot.slack_emulator.limits.objects import check_image
from bot.slack_emulator.limits.validation import ANY_TEXT, PLAIN, Rule, Validation


def _section(validation: Validation, b: Mapping[str, Any], at: str) -> None:
    validation.only(b, at, "block_id text fields accessory expand")
    if b.get("text") is None and b.get("fields") is None:
        validation.add(at, "must define either `text` or `fields`")
    if b.get("text") is not None:
        validation.text(b["text"], f"{at}/text", 3000)
    if b.get("fields") is not None:
        for n, text in enumerate(validation.items(b["fields"], f"{at}/fields", 1, 10)):
            validation.text(text, f"{at}/fields/{n}", 2000)
    if b.get("accessory") is not None:
        check_element(validation, b["accessory"], f"{at}/accessory", "section")


def _divider(validation: Validation, b: Mapping[str, Any], at: str) -> None:
    validation.only(b, at, "block_id")


def _header(validation: Validation, b: Mapping[str, Any], at: str) -> None:
    validation.only(b, at, "block_id text level")
    validation.required_text(b, "text", at, 150)


def _image(validation: Validation, b: Mapping[str, Any], at: str) -> None:
    validation.only(b, at, "block_id image_url slack_file alt_text title")
    check_image(validation, b, at)
    validation.optional_text(b, "title", at, 2000)


def _context(validation: Validation, b: Mapping[str, Any], at: str) -> None:
    validation.only(b, at, "block_id elements")
    for n, element in enumerate(validation.required_items(b, "elements", at, 1, 10)):
        here = f"{at}/elements/{n}"
        if isinstance(element, Mapping) and element.get("type") in ANY_TEXT:
            validation.text(element, here, 3000)
        else:
            check_element(validation, element, here, "context")


def _actions(validation: Validation, b: Mapping[str, Any], at: str) -> None:
    validation.only(b, at, "block_id elements")
    for n, element in enumerate(validation.required_items(b, "elements", at, 1, 25)):
        check_element(validation, element, f"{at}/elements/{n}", "actions")


def _input(validation: Validation, b: Mapping[str, Any], at: str) -> None:
    validation.only(b, at, "block_id label element dispatch_action hint optional")
    validation.required_text(b, "label", at, 2000)
    validation.optional_text(b, "hint", at, 2000)
    validation.flag(b, at, "dispatch_action", "optional")
    if validation.need(b, at, "element"):
        check_element(validation, b["element"], f"{at}/element", "input")


RICH_TEXT_ELEMENTS = ("rich_text_section", "rich_text_list", "rich_text_preformatted", "rich_text_quote")


def _rich_text(validation: Validation, b: Mapping[str, Any], at: str) -> None:
    validation.only(b, at, "block_id elements")
    for n, part in enumerate(validation.required_items(b, "elements", at, 0, 1000)):
        here = f"{at}/elements/{n}"
        if not validation.mapping(part, here):
            continue
        if part.get("type") not in RICH_TEXT_ELEMENTS:
            validation.add(f"{here}/type", f"unsupported type: {part.get('type')}")
        validation.need(part, here, "elements")


def _video(validation: Validation, b: Mapping[str, Any], at: str) -> None:
    names = "title title_url description video_url alt_text thumbnail_url author_name provider_name"
    validation.only(b, at, f"block_id {names} provider_icon_url")
    if validation.need(b, at, "alt_text", "title", "thumbnail_url", "video_url"):
        validation.text(b["title"], f"{at}/title", 200, PLAIN)
    validation.optional_text(b, "description", at, 200)
    validation.string(b, "author_name", at, 50)
    for name in ("title_url", "video_url", "thumbnail_url", "provider_icon_url"):
        validation.url(b, name, at)


def _markdown(validation: Validation, b: Mapping[str, Any], at: str) -> None:
    validation.only(b, at, "block_id text")
    if validation.need(b, at, "text"):
        validation.string(b, "text", at, 12_000, low=1)


def _table(validation: Validation, b: Mapping[str, Any], at: str) -> None:
    validation.only(b, at, "block_id rows column_settings")
    for n, row in enumerate(validation.required_items(b, "rows", at, 1, 100)):
        for m, cell in enumerate(validation.items(row, f"{at}/rows/{n}", 1, 20)):
            _cell(validation, cell, f"{at}/rows/{n}/{m}")


def _cell(validation: Validation, cell: Any, at: str) -> None:
    if not validation.mapping(cell, at):
        return
    if cell.get("type") not in ("raw_text", "rich_text", "raw_number"):
        validation.add(f"{at}/type", f"unsupported type: {cell.get('type')}")
    elif cell["type"] == "raw_text" and validation.need(cell, at, "text"):
        validation.string(cell, "text", at, 3000, low=1)


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


def check_blocks(validation: Validation, value: Any, at: str, high: int) -> None:
    for n, block in enumerate(validation.items(value, at, 0, high)):
        here = f"{at}/{n}"
        if not validation.mapping(block, here):
            continue
        kind = str(block.get("type"))
        rule, surfaces = BLOCKS.get(kind, (None, ""))
        if rule is None or validation.surface not in surfaces.split():
            validation.add(f"{here}/type", f"unsupported type: {kind}")
            continue
        validation.unique(block, "block_id", here, validation.block_ids)
        rule(validation, block, here)
