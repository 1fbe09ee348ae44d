"""What one person asked for: responders with reasons, menus of them, actions, an alert in full."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from bot.cards import ids, names, notices, runs
from bot.cards.alert import headline, responder_menu
from bot.cards.message import Block, ButtonIds, Intent, Message
from bot.cards.text import (
    DAY_AND_TIME,
    OPTION_LIMIT,
    code,
    context,
    count,
    defang,
    defang_indicators,
    foreign,
    foreign_plain,
    person_name,
    plain,
    section,
    slack_date,
    strip_markup,
)
from bot.redaction import RedactedView, Subject, withheld
from core.models import OBJECT_TYPES, TLP_NAMES, Action, Alert, OfferedResponder

MAX_OPTIONS = 100
MAX_LINES = 40
CAN, CANNOT = "Can run", "Can't run, because ..."


def can_run(offered: OfferedResponder) -> bool:
    return offered.verdict != "cannot_run"


def split(offered: Sequence[OfferedResponder]) -> tuple[list[OfferedResponder], list[OfferedResponder]]:
    """Those that can run and those that can't, each by title."""
    ordered = sorted(offered, key=lambda r: (names.title(r).casefold(), r.name))
    return [r for r in ordered if can_run(r)], [r for r in ordered if not can_run(r)]


def responder_list(
    offered: Sequence[OfferedResponder],
    subject: Subject,
    *,
    clearance: int,
    button: ButtonIds,
    command: str,
    refused: str = "",
    who: str = "",
) -> Message:
    """What can run on an object, and why the rest can't; `refused` is why this person can't run anything.

    `who` can open it if this person can't.
    """
    view = RedactedView(subject, clearance)
    if not view.is_open:
        return notices.error(notices.withheld_from(clearance, who))
    if refused:
        for_others = [names.shown(r) for r in split(offered)[1] if len(r.reasons or []) == 1][:MAX_LINES]
        others = [context(f"Others can run {', '.join(for_others)}.")] if for_others else []
        return Message(refused, (_about(view), section(foreign(refused, 500)), *others))
    can, cannot = split(offered)
    text = f"{count(len(can), 'responder')} can run on {subject.id}" + (f", {len(cannot)} can't" if cannot else "")
    blocks: list[Block] = [_about(view)]
    blocks += _lines(f"*Can run ({len(can)})*", [_can_line(r) for r in can])
    if not can:
        blocks.append(section(f"Nothing can run on {subject.id} now."))
    why_not = [f"✗ *{names.shown(r)}*: {foreign(reasons(r), 300)}" for r in cannot]
    blocks += _lines(f"*Can't run ({len(cannot)})*", why_not)
    if can:
        blocks.append(
            {
                "type": "actions",
                "block_id": ids.MENU_BLOCK + button(Intent("menu", subject.id, subject.kind)),
                "elements": [responder_menu("Run a responder")],
            }
        )
        example = code(f"{command} run {names.example(can[0])} {subject.id}", 200)
        blocks.append(context(f"Or type {example}."))
    return Message(text, tuple(blocks))


def _about(view: RedactedView) -> Block:
    subject = view.subject
    about = f"{OBJECT_TYPES[subject.kind]} {subject.id} · {foreign(view.title(), 300)}"
    return headline(view) if subject.kind == "alert" else section(about)


def _can_line(responder: OfferedResponder) -> str:
    about = foreign(responder.description, 160)
    notes = [*map(_without_domain, responder.reasons or []), *_asks(responder)]
    line = f"✓ *{names.shown(responder)}*" + (f" – {about}" if about else "")
    return line + (f" _({foreign('; '.join(notes), 200)})_" if notes else "")


def _without_domain(reason: str) -> str:
    """A reason of core's with its logins as people are called."""
    return re.sub(r"(started by [^@\s]+)@[^@\s]+", r"\1", reason)


def _asks(responder: OfferedResponder) -> list[str]:
    policy = responder.policy
    asks = [f"takes {count(len(responder.parameters), 'input')}"] if responder.parameters else []
    if policy is None:
        return asks
    asks += ["asks first"] if policy.confirm else []
    return asks + ([f"needs {count(policy.approval, 'approval')}"] if policy.approval else [])


def reasons(responder: OfferedResponder) -> str:
    """Why it can't run; foreign text, not escaped."""
    return "; ".join(responder.reasons or []) or "it gives no reason"


def _lines(head: str, lines: Sequence[str]) -> list[Block]:
    """Lines in as many sections as they need; those past MAX_LINES are only counted."""
    if not lines:
        return []
    shown = [head, *lines[:MAX_LINES]]
    if len(lines) > MAX_LINES:
        shown.append(f"and {len(lines) - MAX_LINES} more: the menu finds them by name.")
    parts: list[str] = [shown[0]]
    for line in shown[1:]:
        if len(parts[-1]) + len(line) + 1 > 2900:
            parts.append(line)
        else:
            parts[-1] += f"\n{line}"
    return [section(part) for part in parts]


# --- menus ----------------------------------------------------------------------------------------------------------


def responder_options(offered: Sequence[OfferedResponder], typed: str) -> dict[str, Any]:
    """The entries of a menu, filtered by what is typed: those that can run, then those that can't, at most 100."""
    query = typed.casefold().strip()
    found = [r for r in offered if any(query in words.casefold() for words in (*names.typed_names(r), r.description))]
    can, cannot = split(found)
    can = can[:MAX_OPTIONS]
    cannot = cannot[: MAX_OPTIONS - len(can)]
    groups = [
        (CAN, [responder_option(r) for r in can]),
        (CANNOT, [_option(r, reasons(r)) for r in cannot]),
    ]
    shown = [{"label": plain(label), "options": options} for label, options in groups if options]
    return {"option_groups": shown} if shown else {"options": []}


def message_option(words: str) -> dict[str, Any]:
    """A sentence as the only entry of a menu; choosing it runs nothing."""
    return {"options": [{"text": plain(foreign_plain(words, OPTION_LIMIT)), "value": "none"}]}


def _option(responder: OfferedResponder, about: str) -> dict[str, Any]:
    option: dict[str, Any] = {
        "text": plain(foreign_plain(names.title(responder), OPTION_LIMIT)),
        "value": option_value(responder),
    }
    if about.strip():
        option["description"] = plain(foreign_plain(about, OPTION_LIMIT))
    return option


def responder_option(responder: OfferedResponder) -> dict[str, Any]:
    """A responder that can run, as an entry of a menu."""
    return _option(responder, strip_markup(responder.description))


def option_value(responder: OfferedResponder) -> str:
    """A hash of a responder's id, which may be longer than the 150 characters of an option's value."""
    return hashlib.sha256(responder.id.encode("utf-8", "replace")).hexdigest()[:32]


def responder_of_option(offered: Sequence[OfferedResponder], value: str) -> OfferedResponder | None:
    """The responder with this option value; None if it is no longer offered."""
    return next((r for r in offered if option_value(r) == value), None)


# --- actions, an alert ----------------------------------------------------------------------------------------------


def action_list(actions: Sequence[Action], subject: Subject, *, clearance: int, now_ms: int) -> Message:
    """What ran on an object, newest first."""
    view = RedactedView(subject, clearance)
    newest = runs.newest_first(actions)
    if not newest:
        return Message(f"Nothing ran on {subject.id} yet.", (section(f"Nothing ran on {subject.id} yet."),))
    lines = [f"{runs.run_line(a, view, now_ms=now_ms).rstrip('.')} · {a.id}" for a in newest]
    head = f"*{runs.summary(newest, len(newest)).capitalize()} on {subject.id}*"
    parts = _lines(head, lines[:MAX_LINES])
    if len(lines) > MAX_LINES:
        parts.append(context(f"and {len(lines) - MAX_LINES} earlier ones."))
    return Message(f"{runs.summary(newest, len(newest))} on {subject.id}", tuple(parts))


def alert_in_full(alert: Alert, *, clearance: int, note: str = "", who: str = "") -> Message:
    """An alert in full for the person who asked; if it is above their clearance, only `who` can open it."""
    view = RedactedView(Subject.alert(alert), clearance)
    if not view.is_open:
        return notices.error(notices.withheld_from(clearance, who))
    blocks: list[Block] = [headline(view)]
    blocks += [
        section(foreign(defang_indicators(view.text(alert.description)), 2900, lines=True) or "(no description)")
    ]
    blocks += _lines("*Facts*", _facts(alert, view)) + _artifact_lines(view)
    if note:
        blocks.append(context(note))
    return Message(f"Alert {alert.id}: {foreign(view.title(), 300)}", tuple(blocks))


def found_alerts(alerts: Sequence[Alert], text: str, *, more: bool, clearance: int, button: ButtonIds) -> Message:
    """Alerts that somebody looked for, newest first, each with Details."""
    shown_text = code(text, 100)
    if not alerts:
        return notices.notice(f"No alert that you may see has {shown_text}.")
    blocks: list[Block] = [section(f"*{count(len(alerts), 'alert')}* with {shown_text}, newest first")]
    for alert in alerts:
        view = RedactedView(Subject.alert(alert), clearance)
        details = {"type": "button", "action_id": ids.numbered(ids.DETAILS, alert.id), "text": plain("Details")}
        blocks.append(
            section(
                f"{headline(view)['text']['text']}\n{alert.id} · {foreign(view.text(alert.source), 60)} · "
                f"{alert.status.lower()} · {slack_date(alert.date, DAY_AND_TIME)}",
                accessory={**details, "value": button(Intent("details", alert.id))},
            )
        )
    if more:
        blocks.append(context("There are more. Add a word to find fewer."))
    return Message(f"{count(len(alerts), 'alert')} with {shown_text}", tuple(blocks))


def _facts(alert: Alert, view: RedactedView) -> list[str]:
    facts: Mapping[str, str] = {
        "Source": foreign(view.text(f"{alert.type} · {alert.source} · {alert.source_ref}"), 300),
        "Levels": f"TLP:{TLP_NAMES[alert.tlp].upper()} PAP:{TLP_NAMES[alert.pap].upper()}",
        "Tags": " ".join(code(view.text(tag), 60) for tag in alert.tags[:30]),
        "Raised": slack_date(alert.date, "{date_short_pretty} {time}"),
        "Created": f"{slack_date(alert.created_at, '{date_short_pretty} {time}')} by {person_name(alert.created_by)}",
        "Case": alert.case or "",
    }
    custom = {foreign(view.text(name), 60): _custom(value, view) for name, value in alert.custom_fields.items()}
    return [f"• {name}: {value}" for name, value in [*facts.items(), *list(custom.items())[:20]] if value]


def _custom(value: Any, view: RedactedView) -> str:
    """The value of a custom field of any kind."""
    if isinstance(value, Mapping):
        value = next((v for k, v in value.items() if k not in ("order", "_id") and v is not None), "")
    return foreign(view.text(str(value)), 200)


def _artifact_lines(view: RedactedView) -> list[Block]:
    lines = [
        f"• {foreign(a.data_type, 40)} {code(defang(view.text(a.label)[:600], a.data_type), 250)}"
        + (" *IOC*" if a.ioc else "")
        + (f" – {foreign(view.text(a.message), 120)}" if a.message else "")
        for a in view.artifacts()
    ]
    if hidden := view.hidden_count():
        level = max(a.tlp for a in view.subject.artifacts)
        lines.append(f"• {count(hidden, 'observable')}: {withheld(level)}")
    shown = lines[: MAX_LINES - 1]
    if len(lines) > len(shown):
        shown.append(f"and {len(lines) - len(shown)} more.")
    return _lines("*Observables*", shown)
