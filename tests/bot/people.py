"""People in Slack, in the words that they read: what they see, press, choose and fill in."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from bot.app.dispatcher import BUSY_TEXT
from bot.block_kit import ids
from bot.slack_emulator import EmulatedUser, EmulatorView
from bot.slack_emulator.elements import all_blocks, elements_of
from bot.slack_emulator.limits import problems
from core.models import Alert

T = TypeVar("T")
Json = dict[str, Any]
Look = Callable[[EmulatorView], T | None]
"""What to look for on a person's view."""
SOC = "C0SOC"  # clearance amber, all alerts
MENUS = ("external_select", "static_select", "overflow")
MESSAGE_KEYS = ("text", "blocks", "attachments")
VIEW_KEYS = ("type", "callback_id", "title", "close", "submit", "blocks", "private_metadata")


class Person(EmulatedUser):
    """Somebody at the emulator's page. `shown` is a message, a modal or the App Home."""

    def __init__(self, url: str, token: str, user_id: str) -> None:
        super().__init__(url, token, user_id)
        self._read: set[str] = set()

    @property
    def phone(self) -> list[str]:
        """What this person's phone showed."""
        return [str(shown["text"]) for shown in self.live_view.notifications]

    async def sees(self, look: Look[T]) -> T:
        """What is looked for, once it is there and if it is within Slack's limits."""
        try:
            found = await self.until(look)
        except TimeoutError as error:
            open_modals = [text_of(modal) for modal in self.live_view.modals]
            error.add_note(f"{self.user_id} has these modals open: {open_modals}")
            raise
        assert found is not None  # `until` waits for it
        if isinstance(found, dict):
            within_limits(found)
        return found

    async def reads(self, words: str, channel: str = SOC) -> Json:
        """What tells this person these words, in a modal or an ephemeral message.

        Each is returned once, so that reading the same again waits for the next.
        """

        def look(view: EmulatorView) -> Json | None:
            shown = [*reversed(view.modals), *reversed(view.ephemerals(channel))]
            return next((one for one in shown if words in text_of(one) and _identity(one) not in self._read), None)

        found = await self.sees(look)
        self._read.add(_identity(found))
        return found

    async def presses(self, label: str, shown: Json, beside: str = "") -> Json:
        """Press the button with this label (see `button_of`), which may be the one that submits or closes a modal."""
        if not beside and label == (shown.get("submit") or {}).get("text"):
            return await self.submit(shown["id"], {})
        if not beside and label == (shown.get("close") or {}).get("text"):
            return await self.close(shown["id"])
        return await self.click(**await self._place(shown), action_id=button_of(shown, label, beside)["action_id"])

    async def confirms(self, label: str, shown: Json, beside: str = "", **fields: Any) -> Json:
        """Press the button with this label, and fill in and submit the modal that it opens. Returns that modal."""
        await self.connect()
        earlier = self.live_view.modal
        await self.presses(label, shown, beside)

        def opened(view: EmulatorView) -> Json | None:
            return view.modal if view.modal and view.modal != earlier and view.modal.get("submit") else None

        form = await self.sees(opened)
        await self.submits(form, **fields)
        return form

    async def chooses(self, option: str, shown: Json, beside: str = "") -> Json:
        """Choose what says this in a menu, typing it where the menu searches."""
        place, offered = await self._place(shown), []
        for menu in _elements(shown, beside, *MENUS):
            at = {**place, "action_id": menu["action_id"]}
            options = [one for group in await self._types(option, at) for one in group["options"]]
            offered += [one["text"]["text"] for one in options]
            for one in options:
                if one["text"]["text"] == option:
                    return await self.click(**at, value=one["value"])
        raise AssertionError(f"There is no {option!r} to choose, but {offered}")

    async def searches(self, shown: Json, typed: str = "", beside: str = "") -> list[Json]:
        """The groups of options that the first menu that searches lists for what is typed."""
        menu = _elements(shown, beside, "external_select", "multi_external_select")[0]
        return await self._types(typed, {**await self._place(shown), "action_id": menu["action_id"]})

    async def _types(self, query: str, place: Json) -> list[Json]:
        """Type this into a menu, and a few times more where it says to try again, as it does on a slow machine."""
        for _ in range(5):
            groups = await self.options(**place, query=query)
            if BUSY_TEXT not in [one["text"]["text"] for group in groups for one in group["options"]]:
                break
        return groups

    async def submits(self, form: Json, **fields: Any) -> Json:
        """Fill in these fields of a form, options by what they say, and submit it. The answer may have `errors`."""
        return await self.submit(form["id"], _entered(form, fields))

    async def fills_in(self, form: Json, **fields: Any) -> None:
        """Likewise, without submitting it."""
        for block_id, values in _entered(form, fields).items():
            for action_id, value in values.items():
                await self.click(None, view_id=form["id"], block_id=block_id, action_id=action_id, value=value)

    async def _place(self, shown: Json) -> Json:
        """Where something is shown to this person, once it is."""
        if "ts" not in shown:
            return {"channel": None, "view_id": shown["id"]}
        ts = shown["ts"]
        channel = await self.until(lambda view: next((one for one in view.channels if view.message(one, ts)), None))
        return {"channel": channel, "message_ts": ts}


def reply_to(card: Mapping[str, Any], *words: str, channel: str = SOC, number: int = 1) -> Look[Json]:
    """Looks for the first, or a later, reply in the thread of a card with all these words."""
    return lambda view: _nth(number, replies(view, card, channel), *words)


def card_of(alert: Alert | str, *words: str, channel: str = SOC, without: str = "") -> Look[Json]:
    """Looks for the card of an alert, or a case, once it has all these words."""
    number = alert if isinstance(alert, str) else alert.id
    return lambda view: _first(_cards(view.messages(channel), number), *words, without=without)


def find_card(messages: Iterable[Json], alert_id: str) -> Json | None:
    """The card of an alert among messages."""
    return next(iter(_cards(messages, alert_id)), None)


def updated(message: Mapping[str, Any], *words: str, without: str = "") -> Look[Json]:
    """Looks for a message that was seen before, once it has all these words."""
    ts = message["ts"]
    return lambda view: _first(filter(None, [view.message(c, ts) for c in view.channels]), *words, without=without)


def message_in(channel: str, *words: str, without: str = "") -> Look[Json]:
    """Looks for the newest message of a channel with all these words."""
    return lambda view: _first(reversed(view.messages(channel)), *words, without=without)


def direct_message(*words: str, without: str = "") -> Look[Json]:
    """Looks for the first direct message with all these words."""
    return lambda view: _first(direct_messages(view), *words, without=without)


def ephemeral(words: str = "", channel: str = SOC) -> Look[Json]:
    """Looks for the newest ephemeral message with these words."""
    return lambda view: _first(reversed(view.ephemerals(channel)), words)


def modal(*words: str, without: str = "") -> Look[Json]:
    """Looks for the modal on top, once it has all these words."""
    return lambda view: _first([view.modal] if view.modal else [], *words, without=without)


def app_home(*words: str, without: str = "") -> Look[Json]:
    """Looks for the App Home, once it has all these words."""
    return lambda view: _first([view.home] if view.home else [], *words, without=without)


def on_phone(words: str, number: int = 1) -> Look[str]:
    """Looks for so many notifications with these words; returns the last."""

    def look(view: EmulatorView) -> str | None:
        found = [str(shown["text"]) for shown in view.notifications if words in str(shown["text"])]
        return found[-1] if len(found) >= number else None

    return look


def replies(view: EmulatorView, card: Mapping[str, Any], channel: str = SOC) -> list[Json]:
    """The replies in the thread of a card."""
    return [one for one in view.thread(channel, card["ts"])[1:] if not one.get("ephemeral")]


def direct_messages(view: EmulatorView) -> list[Json]:
    """All direct messages of a person."""
    return [one for channel in view.channels if channel.startswith("D") for one in view.messages(channel)]


def text_of(shown: Mapping[str, Any]) -> str:
    """All texts of a message or view."""
    return json.dumps([shown.get(k) for k in ("text", "title", "blocks", "attachments")], ensure_ascii=False)


def labels_of(shown: Mapping[str, Any]) -> list[str]:
    """What the buttons of a message or view say."""
    return [one["text"]["text"] for one in _elements(shown, "", "button")]


def button_of(shown: Mapping[str, Any], label: str, beside: str = "") -> Json:
    """The button with this label; of several, the first one in or below the block with the words `beside`."""
    found = [one for one in _elements(shown, beside, "button") if one["text"]["text"] == label]
    assert found, f"There is no button {label!r}, but {labels_of(shown)}"
    assert beside or len(found) == 1, f"Say beside what: {len(found)} buttons say {label!r}"
    return found[0]


def menu_block(card: Mapping[str, Any]) -> str:
    """The id of the block of a card's menu of responders, which is another one after each choice."""
    return next(
        str(block["block_id"])
        for block in all_blocks(dict(card))
        if block["block_id"].startswith(ids.MENU_BLOCK) and block["type"] == "actions"
    )


def field_of(form: Mapping[str, Any], name: str) -> Json:
    """The field of a form with this name."""
    fields: dict[str, Json] = {_name(block): block for block in form["blocks"] if block["type"] == "input"}
    assert name in fields, f"There is no field {name!r}, but {list(fields)}"
    return fields[name]


def options_of(form: Mapping[str, Any], name: str) -> list[str]:
    """What can be chosen in a field of a form."""
    return [one["text"]["text"] for one in _options(field_of(form, name)["element"])]


def filled_in(form: Mapping[str, Any]) -> Json:
    """What the fields of a form hold, by name; options as people read them."""
    held: Json = {}
    for block in form["blocks"]:
        if block["type"] == "input":
            state = form["state"]["values"][block["block_id"]][block["element"]["action_id"]]
            (value,) = [item for key, item in state.items() if key != "type"]
            words = [one["text"]["text"] if isinstance(one, dict) else one for one in _listed(value)]
            held[_name(block)] = words if isinstance(value, list) else words[0]
    return held


def within_limits(shown: Json) -> Json:
    """A message or view, after a check of Slack's limits."""
    if shown.get("type") in ("modal", "home"):
        assert problems(shown["type"], {key: shown[key] for key in VIEW_KEYS if shown.get(key)}) == []
    else:
        assert problems("message", {key: shown[key] for key in MESSAGE_KEYS if shown.get(key)}) == []
    return shown


def _cards(messages: Iterable[Json], number: str) -> list[Json]:
    marks = (f" {number}:", f" ({number}):")
    return [one for one in messages if any(mark in one["text"] for mark in marks) and not one.get("ephemeral")]


def _first(shown: Iterable[Json], *words: str, without: str = "") -> Json | None:
    return _nth(1, shown, *words, without=without)


def _nth(number: int, shown: Iterable[Json], *words: str, without: str = "") -> Json | None:
    texts = ((one, text_of(one)) for one in shown)
    found = [one for one, text in texts if all(part in text for part in words) and not (without and without in text)]
    return found[number - 1] if len(found) >= number else None


def _elements(shown: Mapping[str, Any], words: str, *types: str) -> list[Json]:
    """The elements of these types in the first block with these words, and in all below it.

    Without words those of the whole, first what isn't beside a text.
    """
    blocks = sorted(all_blocks(dict(shown)), key=lambda block: not words and "accessory" in block)
    first = next((n for n, block in enumerate(blocks) if words in json.dumps(block, ensure_ascii=False)), len(blocks))
    return [one for block in blocks[first:] for one in elements_of(block) if one["type"] in types]


def _options(element: Json) -> list[Json]:
    return [one for group in (element, *element.get("option_groups", ())) for one in group.get("options", ())]


def _name(field: Json) -> str:
    """The name of a field: its input, or the kind of its block."""
    kind, *more = str(field["block_id"]).split(":")
    return more[-1] if kind == "input" else kind


def _entered(form: Json, fields: Mapping[str, Any]) -> Json:
    """The values of these fields, as a submission has them."""
    values: Json = {}
    for name, value in fields.items():
        block = field_of(form, name)
        element = block["element"]
        options = {one["text"]["text"]: one["value"] for one in _options(element)}
        entered = [options.get(one, one) for one in _listed(value)]
        values[block["block_id"]] = {element["action_id"]: entered if isinstance(value, list) else entered[0]}
    return values


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _identity(shown: Mapping[str, Any]) -> str:
    """Tells messages and states of a view apart."""
    return str(shown.get("ts") or (shown["id"], shown["hash"]))
