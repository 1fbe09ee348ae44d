"""Alerts for one person: what a search found, and one in full."""

from collections.abc import Mapping, Sequence
from typing import Any

from bot.block_kit import ids, notices
from bot.block_kit.elements import actions, button_element, listed, pages
from bot.block_kit.subjects import by_ioc, headline, observable, with_menu
from bot.block_kit.text import code, context, defang_indicators, foreign, person_name, section, slack_date
from bot.clearance import RedactedView, Subject, withheld
from bot.features.alerts.views.card import STATUS_WORDS, repeats, status_line
from bot.features.responders.views import menu_block, several_button
from bot.message import Block, ButtonIds, Intent, Message
from core.common.words import count
from core.models import TLP_NAMES, Alert

FOUND_TEXT_LIMIT = 500  # characters of what somebody looked for


ARTIFACTS_SHOWN = 40  # in Details at once


def alert_in_full(
    alert: Alert,
    *,
    clearance: int,
    button: ButtonIds,
    note: str = "",
    who: str = "",
    start: int = 0,
    channel: str = "",
) -> Message:
    """An alert in full for the person who asked in `channel`; if it is above their clearance, only `who` can open it.

    It and each artifact have a menu; the artifacts come in pages; this one begins with number `start`.
    """
    view = RedactedView(Subject.alert(alert), clearance)
    if not view.is_open:
        return notices.error(notices.withheld_from(clearance, who))
    blocks: list[Block] = [headline(view)]
    if not start:
        description = foreign(defang_indicators(view.text(alert.description)), 2900, lines=True)
        blocks.append(section(description or "(no description)"))
        blocks += listed("*Facts*", _facts(alert, view))
    if alert.status == "Ignored":
        blocks.append(actions(button_element("Reopen", ids.REOPEN, button(Intent("unread", alert.id)))))
    blocks += [menu_block(view, button, channel), *_artifacts(view, button, start, channel)]
    if note:
        blocks.append(context(note))
    return Message(f"Alert {alert.id}: {foreign(view.title(), 300)}", tuple(blocks))


def found_alerts(
    alerts: Sequence[Alert], text: str, *, more: bool, clearance: int, button: ButtonIds, channel: str = ""
) -> Message:
    """Alerts that somebody in `channel` looked for, the newest day first, each with Details."""
    shown_text = code(text, 100)
    if not alerts:
        return notices.notice(f"No alert that you may see contains {shown_text}.")
    number = f"{'First ' if more else ''}{count(len(alerts), 'alert')}"
    blocks: list[Block] = [section(f"*{number}* with {shown_text}, newest day first, worst first in a day")]
    for alert in alerts:
        view = RedactedView(Subject.alert(alert), clearance)
        value, about = button(Intent("details", alert.id)), f"{alert.id} {view.title()}"
        blocks.append(
            section(
                f"{headline(view)['text']['text']}\n{alert.id} · {foreign(view.text(alert.source), 60)} · "
                f"{STATUS_WORDS[alert.status]} · {slack_date(alert.date)}",
                accessory=button_element("Details", ids.DETAILS, value, of=alert.id, about=about),
            )
        )
    if len(alerts) > 1:
        several = Intent("several_found", "", f"{channel} {text[:FOUND_TEXT_LIMIT]}")
        blocks.append(actions(several_button(several, button)))
    if more:
        blocks.append(context("There are more. Add a word to find fewer."))
    return Message(f"{number} with {shown_text}", tuple(blocks))


def _facts(alert: Alert, view: RedactedView) -> list[str]:
    facts: Mapping[str, str] = {
        "Source": foreign(view.text(f"{alert.type} · {alert.source} · {alert.source_ref}"), 300),
        "Status": status_line(alert, view),
        "Levels": f"TLP:{TLP_NAMES[alert.tlp].upper()} PAP:{TLP_NAMES[alert.pap].upper()}",
        "Tags": " ".join(code(view.text(tag), 60) for tag in alert.tags[:30]),
        "Raised": slack_date(alert.date),
        "Sent": repeats(alert),
        "Created": f"{slack_date(alert.created_at)} by {person_name(alert.created_by)}",
        "Case": alert.case or "",
    }
    custom = {foreign(view.text(name), 60): _custom(value, view) for name, value in alert.custom_fields.items()}
    return [f"• {name}: {value}" for name, value in [*facts.items(), *list(custom.items())[:20]] if value]


def _custom(value: Any, view: RedactedView) -> str:
    """The value of a custom field of any kind."""
    if isinstance(value, Mapping):
        value = next((v for k, v in value.items() if k not in ("order", "_id") and v is not None), "")
    return foreign(view.text(str(value)), 200)


def _artifacts(view: RedactedView, button: ButtonIds, start: int, channel: str) -> list[Block]:
    """Each artifact that may be shown, with its menu, and how many may not."""
    artifacts = by_ioc(view.artifacts())
    shown = artifacts[start : start + ARTIFACTS_SHOWN]
    if not view.subject.artifacts:
        return []
    place = f" {start + 1} to {start + len(shown)} of {len(artifacts)}" if len(artifacts) > len(shown) else ""
    blocks: list[Block] = [section(f"*Observables*{place}")]
    blocks += [with_menu(observable(a, view, 600, 120), a, view, button) for a in shown]
    if hidden := view.hidden_count():
        level = max(a.tlp for a in view.subject.artifacts)
        blocks.append(context(f"{count(hidden, 'observable')}: {withheld(level)}"))
    intent = Intent("details", view.subject.id, channel)
    others = pages(ids.DETAILS, intent, start, ARTIFACTS_SHOWN, len(artifacts), button)
    return [*blocks, actions(*others)] if others else blocks
