"""What the page suggests to try."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Pointer:
    """One thing to try: the page acts as `user`, opens `channel`, Home or the phone, and fills in `insert` unsent."""

    title: str
    text: str
    user: str = ""
    channel: str = ""
    insert: str = ""
    home: bool = False
    phone: bool = False
    """Whether it opens what the phone of `user` showed."""
    shows: str = ""
    """Words of the card that it brings into sight."""
    done: str = ""
    """A regular expression: the page ticks the pointer once it is sent such a message, modal or Home; "" ticks it once
    it is opened."""
    start: Callable[[], Awaitable[None]] | None = None
    """What the pointer has somebody else do, such as a system that sends alerts."""

    def for_page(self) -> dict[str, Any]:
        """The pointer as the page receives it, without what is empty."""
        shown = {key: value for key, value in vars(self).items() if value and key != "start"}
        return {**shown, "starts": True} if self.start else shown
