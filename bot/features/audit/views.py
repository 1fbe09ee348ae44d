"""The story of one object, in plain sentences."""

from collections.abc import Sequence

from bot.block_kit.elements import MAX_LINES, listed
from bot.block_kit.notices import notice
from bot.block_kit.text import code, context, defang_indicators, foreign, section, slack_date
from bot.message import Message
from core.models import AuditRow

ROW_CHARS = 400


def story(object_id: str, rows: Sequence[AuditRow]) -> Message:
    """Who decided what about an object and what belongs to it; the newest rows if they are many."""
    title = f"*Audit of {object_id}*"
    shown = rows[-MAX_LINES:]
    if len(shown) < len(rows):
        title += f": the last {len(shown)} of {len(rows)} rows"
    if not rows:
        return notice(f"{title}\nNothing was decided on it yet, as far as you may see.")
    return Message(title, tuple(listed(title, [_line(row) for row in shown])))


def published(row: AuditRow) -> Message:
    """A head of the audit, with what it says if it changes rights."""
    head = code(f"{row.number}:{row.hash}", 100)
    if not row.is_right:
        return Message(f"Head of the audit: {row.number}", (context(f"Head of the audit: {head}"),))
    said = foreign(defang_indicators(row.sentence), ROW_CHARS)
    return Message(said, (section(f":key: {said}"), context(f"Head of the audit: {head}")))


def _line(row: AuditRow) -> str:
    said = foreign(defang_indicators(row.sentence), ROW_CHARS)
    return f"{row.number}. {slack_date(row.at, '{date_short_pretty} {time}')} {said}"
