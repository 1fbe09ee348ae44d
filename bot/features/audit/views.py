"""The story of one object, in plain sentences."""

from collections.abc import Sequence

from bot.block_kit.elements import MAX_LINES, listed
from bot.block_kit.notices import notice
from bot.block_kit.text import DAY_AND_TIME, code, context, defang_indicators, foreign, section, slack_date
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
    said = _said(row)
    return Message(said, (section(f":key: {said}"), context(f"Head of the audit: {head}")))


def _line(row: AuditRow) -> str:
    return f"{row.number}. {slack_date(row.at, DAY_AND_TIME)} {_said(row)}"


def _said(row: AuditRow) -> str:
    """The sentence of a row, with people by the first part of their logins."""
    sentence = row.sentence
    for login in (row.by, row.object):
        name, _, domain = login.partition("@")
        sentence = sentence.replace(login, name) if name and domain else sentence
    return foreign(defang_indicators(sentence), ROW_CHARS)
