"""What was checked, and the answer of `/health`, of core and of the bot."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from core.models.base import ApiModel


@dataclass(frozen=True)
class Check:
    """A component in `/health`, or a line of `doctor`: whether it is well, and what to do if it isn't."""

    name: str
    ok: bool
    message: str = ""
    is_vital: bool = False
    """Nothing works without it."""
    is_warning: bool = False
    """It is well, but something that most people want is not set."""


class HealthPartModel(ApiModel):
    """A component in the answer of `/health`."""

    name: str
    ok: bool
    message: str


class HealthModel(ApiModel):
    """The answer of `/health`."""

    status: Literal["ok", "degraded", "down"]
    parts: list[HealthPartModel]

    @staticmethod
    def of(checks: Sequence[Check]) -> "HealthModel":
        """Down if a vital check fails, degraded if another does."""
        failed = [check for check in checks if not check.ok]
        status = "down" if any(check.is_vital for check in failed) else "degraded" if failed else "ok"
        parts = [HealthPartModel(name=check.name, ok=check.ok, message=check.message) for check in checks]
        return HealthModel(status=status, parts=parts)
