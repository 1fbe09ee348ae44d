"""Errors that the emulator returns to the app and to the page."""

from typing import Any


class SlackError(Exception):
    """A Slack API error. `code` is Slack's error code; `more` are further fields of the response."""

    def __init__(self, code: str, *, status: int = 200, retry_after_s: int | None = None, **more: Any) -> None:
        super().__init__(code)
        self.code = code
        self.status = status
        self.retry_after_s = retry_after_s
        self.more = more

    def body(self) -> dict[str, Any]:
        """The JSON body of the response."""
        return {"ok": False, "error": self.code, **self.more}


class PageError(Exception):
    """A user's request that can't be fulfilled; `status` is the HTTP status."""

    def __init__(self, code: str, text: str, *, status: int = 400) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text
        self.status = status
