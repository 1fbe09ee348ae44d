"""A refusal in Slack's own words."""

from typing import Any


class SlackError(Exception):
    """Slack says no. `code` is Slack's error word; `more` goes into the answer beside it."""

    def __init__(self, code: str, *, status: int = 200, retry_after_s: int | None = None, **more: Any) -> None:
        super().__init__(code)
        self.code = code
        self.status = status
        self.retry_after_s = retry_after_s
        self.more = more

    def body(self) -> dict[str, Any]:
        """The JSON that Slack answers."""
        return {"ok": False, "error": self.code, **self.more}


class PageError(Exception):
    """The page (or a test's person) asked for something that can't be done; `status` is the HTTP status."""

    def __init__(self, code: str, text: str, *, status: int = 400) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text
        self.status = status
