"""Messages, modals, App Homes, and the options of a menu."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from bot.slack_emulator.limits.blocks import check_blocks
from bot.slack_emulator.limits.objects import check_option_groups, check_options
from bot.slack_emulator.limits.validation import ID_LENGTH, Surface, Validation

BLOCKS_IN_MESSAGE = 50


BLOCKS_IN_VIEW = 100


TEXT_OF_MESSAGE = 40_000


BLOCKS_OF_MESSAGE = 13_000  # characters


def problems(surface: Surface, payload: Mapping[str, Any]) -> list[str]:
    """Problems for which Slack would reject a payload.

    `payload` is a message (`text`, `blocks`, `attachments`), a view, or the response to a block_suggestion.
    """
    validation = Validation(surface)
    _SURFACES[surface](validation, payload)
    return validation.found


def blocks_size(message: Mapping[str, Any]) -> int:
    """Characters of the blocks of a message and its attachments, as compact JSON.

    Slack limits their sum without saying to what: 13,297 characters of text in one block were accepted, 13,172 beside a
    divider weren't, and 11,341 in many nested elements neither (slackapi/bolt-js, 2509 and 2867). So structure counts
    too; compact JSON overestimates it rather than otherwise.
    """
    blocks = [message.get("blocks") or []]
    attachments = message.get("attachments")
    if isinstance(attachments, list | tuple):
        blocks += [attachment.get("blocks") or [] for attachment in attachments if isinstance(attachment, Mapping)]
    return sum(len(json.dumps(part, ensure_ascii=False, separators=(",", ":"))) for part in blocks if part)


def _message(validation: Validation, message: Mapping[str, Any]) -> None:
    validation.string(message, "text", "", TEXT_OF_MESSAGE)
    if message.get("blocks") is not None:
        check_blocks(validation, message["blocks"], "/blocks", BLOCKS_IN_MESSAGE)
    if blocks_size(message) > BLOCKS_OF_MESSAGE:
        validation.add("/blocks", f"no more than {BLOCKS_OF_MESSAGE} characters of blocks allowed in a message")
    if message.get("attachments") is None:
        return
    for n, attachment in enumerate(validation.items(message["attachments"], "/attachments", 0, 100)):
        here = f"/attachments/{n}"
        if validation.mapping(attachment, here) and attachment.get("blocks") is not None:
            check_blocks(validation, attachment["blocks"], f"{here}/blocks", BLOCKS_IN_MESSAGE)


def _modal(validation: Validation, view: Mapping[str, Any]) -> None:
    names = "title blocks close submit private_metadata callback_id clear_on_close notify_on_close"
    validation.only(view, "/view", f"{names} external_id submit_disabled")
    validation.required_text(view, "title", "/view", 24)
    validation.optional_text(view, "close", "/view", 24)
    validation.optional_text(view, "submit", "/view", 24)
    validation.flag(view, "/view", "clear_on_close", "notify_on_close", "submit_disabled")
    _view(validation, view, "modal")
    if view.get("submit") is not None or not isinstance(view.get("blocks"), list | tuple):
        return
    for n, block in enumerate(view["blocks"]):
        if isinstance(block, Mapping) and block.get("type") == "input":
            validation.add(f"/view/blocks/{n}/input", "must define `submit` to use an `input` block in modals")


def _home(validation: Validation, view: Mapping[str, Any]) -> None:
    validation.only(view, "/view", "blocks private_metadata callback_id external_id")
    _view(validation, view, "home")


def _view(validation: Validation, view: Mapping[str, Any], kind: str) -> None:
    if view.get("type") != kind:
        validation.add("/view/type", f"must be one of: {kind}")
    validation.string(view, "private_metadata", "/view", 3000)
    validation.string(view, "callback_id", "/view", ID_LENGTH)
    validation.string(view, "external_id", "/view", ID_LENGTH)
    if validation.need(view, "/view", "blocks"):
        check_blocks(validation, view["blocks"], "/view/blocks", BLOCKS_IN_VIEW)


def _suggestions(validation: Validation, response: Mapping[str, Any]) -> None:
    validation.only(response, "", "options option_groups")
    both = [name for name in ("options", "option_groups") if response.get(name) is not None]
    if len(both) != 1:
        validation.add("", "must define either `options` or `option_groups`, but not both")
    if "options" in both:
        check_options(validation, response["options"], "/options", low=0)
    if "option_groups" in both:
        check_option_groups(validation, response["option_groups"], "/option_groups", low=0)


_SURFACES: dict[str, Callable[[Validation, Mapping[str, Any]], None]] = {
    "message": _message,
    "modal": _modal,
    "home": _home,
    "options": _suggestions,
}
