"""The location of a database: a SQLite file, or the URL of a PostgreSQL server."""

import re
from importlib import import_module
from pathlib import Path

from core.common.errors import ResponderBotError

SETTING = "[core] database"
"""The setting that gives it."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class PostgresqlUrl:
    """A URL that may hold a password: `str` and `repr` don't show it. No dataclass, whose fields pydantic dumps."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return "postgresql://..."

    def __repr__(self) -> str:
        return f"PostgresqlUrl({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PostgresqlUrl) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


Location = Path | PostgresqlUrl


def parse_location(value: object) -> Location:
    """The location that a setting gives. Raises ValueError for anything but a path and the URL of a PostgreSQL.

    Other URLs would be taken for a path, and a new SQLite file created there.
    """
    if isinstance(value, Path | PostgresqlUrl):
        return value
    if not isinstance(value, str) or not value:
        raise ValueError("neither a path nor a URL")
    scheme = _SCHEME.match(value)
    if scheme is None:
        return Path(value)
    if scheme[1] not in ("postgresql", "postgres"):
        raise ValueError("the URL of another database")
    return PostgresqlUrl(value)


def files_of(location: Location) -> list[Path]:
    """The file of a database on this machine; none of one on PostgreSQL."""
    return [] if isinstance(location, PostgresqlUrl) else [location]


def check_installed() -> None:
    """Raises ResponderBotError("bad_request") without psycopg."""
    try:
        import_module("psycopg")
    except ImportError as error:
        sentence = (
            f"PostgreSQL needs psycopg, which is not installed ({error.name or error});"
            f" install responder-bot with its extra `postgresql`, or name a SQLite file with {SETTING}."
        )
        raise ResponderBotError("bad_request", sentence) from error
