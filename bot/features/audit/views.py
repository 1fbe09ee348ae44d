"""The story of one object, in plain sentences."""

import re
from collections.abc import Sequence

from bot.block_kit.elements import MAX_LINES, listed
from bot.block_kit.notices import notice
from bot.block_kit.text import VERSION, defang_indicators, foreign, in_own_time, plain_name, readable_name, slack_date
from bot.message import Message
from core.models import AuditRow

ROW_CHARS = 400
_LOGIN = re.compile(r"[^@\s]+@[^@\s]+")


def story(about: str, rows: Sequence[AuditRow]) -> Message:
    """Who decided what `about` an object (mrkdwn) and what belongs to it; the newest rows if they are many."""
    title = f"*Audit of {about}*"
    shown = rows[-MAX_LINES:]
    if len(shown) < len(rows):
        title += f": the last {len(shown)} of {len(rows)} rows"
    if not rows:
        return notice(f"{title}\nNothing was decided on it yet, as far as you may see.")
    return Message(title, tuple(listed(title, [f"{slack_date(row.at)} {_said(row)}" for row in shown])))


def _said(row: AuditRow) -> str:
    """The sentence of a row, with people and responders as they are called; neither is an indicator."""
    names = {
        value: readable_name(value) if VERSION.search(value) else plain_name(value)
        for values in row.row.values()
        for value in (values if isinstance(values, list) else [values])
        if isinstance(value, str) and (_LOGIN.fullmatch(value) or VERSION.search(value))
    }
    named = "|".join(map(re.escape, names)) or "(?!)"
    parts = re.split(rf"(?<![^\s(])({named})(?![^\s,;:)])", row.sentence)
    return in_own_time(foreign("".join(names.get(part) or defang_indicators(part) for part in parts), ROW_CHARS))
