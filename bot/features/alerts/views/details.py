"""Alerts for one person: what a search found, and one in full."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bot.block_kit import ids, notices
from bot.block_kit.elements import actions, button_element, listed, pages
from bot.block_kit.subjects import SHORT_TITLE, SIGNS, headline, hosts_first, observable, severities, with_menu
from bot.block_kit.text import code, context, defang_indicators, foreign, person_name, section, sections, slack_date
from bot.clearance import RedactedView, Subject, artifact_title, refanged, tlp_name, withheld
from bot.features.alerts.views.card import STATUS_WORDS, owner_button, repeats, run_lines, status_line
from bot.features.cases.views import case_button
from bot.features.responders.views import menu_block, several_button
from bot.features.runs.views import runs
from bot.features.runs.views.undo_state import already
from bot.message import Block, ButtonIds, Intent, Message
from bot.storms import common
from core.common.words import count
from core.models import TLP_NAMES, Alert, Artifact, Document, Measure

FOUND_TEXT_LIMIT = 500  # characters of what somebody looked for
LINES_SHOWN = 15
TITLE_LIMIT = 200
Lines = Mapping[str, Sequence[Alert]]  # by the key of their group, or their id
Held = Sequence[Measure]  # what is in force
NAMED = 2  # observables of each alert of several, and what is in force on those of one


ARTIFACTS_SHOWN = 25  # in Details at once, beside runs: a message has at most 50 blocks


def alert_in_full(
    alert: Alert,
    document: Document,
    button: ButtonIds,
    *,
    clearance: int,
    note: str = "",
    start: int = 0,
    channel: str = "",
    held: Held = (),
) -> Message:
    """An alert in full for the person who asked in `channel`; nothing above their clearance.

    It and each artifact have a menu; the artifacts come in pages; this one begins with number `start`. `held` is what
    runs of other alerts have in force on them.
    """
    view = RedactedView(Subject.in_document(document, alert.id) or Subject.alert(alert), clearance)
    if not view.is_open:
        return notices.error(notices.withheld_from(clearance))
    newest, total = runs.newest_first(document.actions), sum(document.action_counts.values())
    urgent, more = run_lines(newest, view.of, button, alert.id, total=total)
    blocks: list[Block] = [headline(view)]
    if not start:
        undecided = [one.id for one in newest if one.why_not_decide]
        able = list(dict.fromkeys(who.login for id_ in undecided for who in document.may_decide.get(id_, ())))
        blocks += [*urgent, *([context(f"{foreign(notices.either(able), 200)} can decide.")] if able else [])]
        blocks += sections(already(one, view, f"`/responder active {one.root_id}` ends it.") for one in held[:NAMED])
        description = foreign(defang_indicators(view.text(alert.description)), 2900, lines=True)
        blocks.append(section(description or "(no description)"))
        blocks += listed("*Facts*", _facts(alert, view))
    buttons = _buttons(alert, button)
    blocks += [actions(*buttons)] if buttons else []
    blocks += [menu_block(view, button, channel), *_artifacts(view, button, start, channel), *([] if start else more)]
    blocks += [context(note)] if note else []
    return Message(f"Alert {alert.id}: {foreign(view.title(), 300)}", tuple(blocks))


def _buttons(alert: Alert, button: ButtonIds) -> list[dict[str, Any]]:
    """Reopen, Assign to me or Unassign, and Show case, as far as they apply now."""
    reopen = button_element("Reopen", ids.REOPEN, button(Intent("unread", alert.id)))
    buttons = [reopen] if alert.status == "Ignored" else []
    buttons += [owner_button(alert, button)] if alert.assignee or alert.status in ("New", "Updated") else []
    return buttons + ([case_button(alert.case, button)] if alert.case else [])


def found_alerts(
    lines: Lines,
    text: str,
    then: str,
    held: Held,
    button: ButtonIds,
    *,
    more: bool,
    clearance: int,
    channel: str = "",
    of_one_title: Collection[str] = (),
) -> Message:
    """Alerts that somebody in `channel` looked for, the newest day first, by the key of their group or their id.

    `then` is what to do with them, mrkdwn; `held` is all that is in force.
    """
    shown_text, total = code(text, 100), sum(map(len, lines.values()))
    if not lines:
        return notices.notice(f"No alert that you may see contains {shown_text}.{then}")
    number = f"{'First ' if more else ''}{count(total, 'alert')}"
    order = ", newest day first, worst first in a day" * (total > 1)
    blocks: list[Block] = [section(f"*{number}* with {shown_text}{order}.{then}")]
    for key, together in [*lines.items()][:LINES_SHOWN]:
        alert, counts = together[0], Counter(alert.severity for alert in together)
        view = RedactedView(Subject.alert(alert), clearance)
        of_group = group_line(view, counts, key, alert.date, button, is_one_title=key in of_one_title)
        blocks.append(of_group if len(together) > 1 else _found(alert, view, button, text, held))
    if total > 1:
        several = Intent("several_found", "", f"{channel} {text[:FOUND_TEXT_LIMIT]}")
        blocks.append(actions(several_button(several, button)))
    blocks += [context("There are more. Add a word to find fewer.")] if more or len(lines) > LINES_SHOWN else []
    return Message(f"{number} with {shown_text}", tuple(blocks))


def first_observables(view: RedactedView, text: str = "", held: Held = ()) -> list[str]:
    """`ip 198[.]51[.]100[.]7`: the first that may be shown, those with words of a text first; mrkdwn.

    Of what is `held`, in force, those that it is on have a lock, and so has the number of those that are not shown.
    """
    words, on = refanged(text).casefold().split(), {(t.kind, t.data) for one in held for t in one.target or ()}
    found = sorted(
        hosts_first(view.artifacts()), key=lambda one: not any(word in one.label.casefold() for word in words)
    )

    def is_held(one: Artifact) -> bool:
        return one.target is not None and (one.target.kind, one.target.value or one.label) in on

    def shown(one: Artifact) -> str:
        return f"{'🔒 ' if is_held(one) else ''}{foreign(view.text(artifact_title(one)), TITLE_LIMIT)}"

    more = sum(map(is_held, found[NAMED:]))
    return [*map(shown, found[:NAMED]), *([f"🔒 +{more}\u00a0more"] if more else [])]


def group_line(
    view: RedactedView, counts: Counter[int], key: str, at: int, button: ButtonIds, *, is_one_title: bool
) -> Block:
    """How many alerts of a group there are of each severity, and what all say; `view` is of the worst."""
    worst, *others = severities(counts).split(", ")
    title = foreign(defang_indicators(view.title() if is_one_title else common(view.title())), SHORT_TITLE)
    show = button_element("Show alerts", ids.GROUP_ALERTS, button(Intent("group_alerts", key, "0")), of=key)
    line = f"{', '.join([worst.upper(), *others])}: {title} (one group) · {slack_date(at)}"
    return section(f"{SIGNS[view.subject.severity]} {line}", accessory=show)


def _found(alert: Alert, view: RedactedView, button: ButtonIds, text: str, held: Held) -> Block:
    facts = [alert.id, foreign(view.text(alert.source), 60), STATUS_WORDS[alert.status], slack_date(alert.date)]
    line, about = " · ".join([*facts, *first_observables(view, text, held)]), f"{alert.id} {view.title()}"
    details = button_element("Details", ids.DETAILS, button(Intent("details", alert.id)), of=alert.id, about=about)
    return section(f"{headline(view, limit=SHORT_TITLE)['text']['text']}\n{line}", accessory=details)


def _facts(alert: Alert, view: RedactedView) -> list[str]:
    facts: Mapping[str, str] = {
        "Source": foreign(view.text(f"{alert.type} · {alert.source} · {alert.source_ref}"), 300),
        "Status": status_line(alert, view),
        "Levels": f"{tlp_name(alert.tlp)} PAP:{TLP_NAMES[alert.pap].upper()}",
        "Tags": " ".join(code(tag, 60) for tag in view.tags(alert)[:30]),
        "Raised": slack_date(alert.date),
        "Sent": repeats(alert),
        "Created": f"{slack_date(alert.created_at)} by {person_name(alert.created_by)}",
        "Case": alert.case or "",
    }
    custom = {foreign(view.text(name), 60): _custom(value, view) for name, value in view.fields(alert).items()}
    return [f"• {name}: {value}" for name, value in [*facts.items(), *list(custom.items())[:20]] if value]


def _custom(value: Any, view: RedactedView) -> str:
    """The value of a custom field of any kind."""
    if isinstance(value, Mapping):
        value = next((v for k, v in value.items() if k not in ("order", "_id") and v is not None), "")
    return foreign(view.text(str(value)), 200)


def _artifacts(view: RedactedView, button: ButtonIds, start: int, channel: str) -> list[Block]:
    """Each artifact that may be shown, with its menu, and how many may not."""
    artifacts = hosts_first(view.artifacts())
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
