"""The problems that are found in one payload, and the checks of strings, lists and text objects."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Surface = Literal["message", "modal", "home", "options"]


ID_LENGTH = 255


PLAIN = ("plain_text",)


ANY_TEXT = ("plain_text", "mrkdwn")


@dataclass
class Validation:
    """Collects the problems and the ids of one payload."""

    surface: Surface
    found: list[str] = field(default_factory=list)
    block_ids: set[str] = field(default_factory=set)
    action_ids: set[str] = field(default_factory=set)
    focused: bool = False

    def add(self, at: str, problem: str) -> None:
        self.found.append(f"{problem} [json-pointer:{at}]")

    def mapping(self, value: Any, at: str) -> bool:
        if not isinstance(value, Mapping):
            self.add(at, "must provide an object")
            return False
        return True

    def need(self, thing: Mapping[str, Any], at: str, *names: str) -> bool:
        missing = [name for name in names if thing.get(name) is None]
        for name in missing:
            self.add(at, f"missing required field: {name}")
        return not missing

    def only(self, thing: Mapping[str, Any], at: str, names: str) -> None:
        for name in sorted(set(thing) - set(names.split()) - {"type"}):
            self.add(at, f"invalid additional property: {name}")

    def items(self, value: Any, at: str, low: int, high: int) -> Sequence[Any]:
        if not isinstance(value, list | tuple):
            self.add(at, "must provide an array")
            return ()
        if len(value) < low:
            self.add(at, f"must provide at least {low} items")
        if len(value) > high:
            self.add(at, f"no more than {high} items allowed")
        return value

    def required_items(self, thing: Mapping[str, Any], name: str, at: str, low: int, high: int) -> Sequence[Any]:
        return self.items(thing[name], f"{at}/{name}", low, high) if self.need(thing, at, name) else ()

    def string(self, thing: Mapping[str, Any], name: str, at: str, high: int, low: int = 0) -> None:
        value = thing.get(name)
        if value is None:
            return
        here = f"{at}/{name}"
        if not isinstance(value, str):
            self.add(here, "must be a string")
        elif len(value) < low:
            self.add(here, f"must be more than {low - 1} characters")
        elif len(value) > high:
            self.add(here, f"must be less than {high + 1} characters")

    def flag(self, thing: Mapping[str, Any], at: str, *names: str) -> None:
        for name in names:
            if name in thing and not isinstance(thing[name], bool):
                self.add(f"{at}/{name}", "must be a boolean")

    def url(self, thing: Mapping[str, Any], name: str, at: str, high: int = 3000) -> None:
        self.string(thing, name, at, high, low=1)
        value = thing.get(name)
        if isinstance(value, str) and value and "://" not in value and not value.startswith("mailto:"):
            self.add(f"{at}/{name}", "must be a valid URL")

    def text(self, value: Any, at: str, high: int, kinds: Sequence[str] = ANY_TEXT, low: int = 1) -> None:
        """Check a text object; `kinds` are the types allowed."""
        if not self.mapping(value, at):
            return
        kind = value.get("type")
        if kind not in kinds:
            self.add(f"{at}/type", f"must be one of: {', '.join(kinds)}")
            return
        self.only(value, at, "text emoji" if kind == "plain_text" else "text verbatim")
        self.flag(value, at, "emoji", "verbatim")
        if self.need(value, at, "text"):
            self.string(value, "text", at, high, low)

    def optional_text(
        self, thing: Mapping[str, Any], name: str, at: str, high: int, kinds: Sequence[str] = PLAIN
    ) -> None:
        if thing.get(name) is not None:
            self.text(thing[name], f"{at}/{name}", high, kinds)

    def required_text(
        self, thing: Mapping[str, Any], name: str, at: str, high: int, kinds: Sequence[str] = PLAIN
    ) -> None:
        if self.need(thing, at, name):
            self.text(thing[name], f"{at}/{name}", high, kinds)

    def unique(self, thing: Mapping[str, Any], name: str, at: str, seen: set[str]) -> None:
        self.string(thing, name, at, ID_LENGTH, low=1)
        value = thing.get(name)
        if not isinstance(value, str):
            return
        if value in seen:
            self.add(f"{at}/{name}", f'`{name}` "{value}" already exists')
        seen.add(value)


Rule = Callable[[Validation, Mapping[str, Any], str], None]
