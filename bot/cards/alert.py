"""The card of an alert: one message that is kept current, with a line for each run."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from bot.cards import ids, reports, runs
from bot.cards.message import Block, ButtonIds, Intent, Message
from bot.cards.text import (
    DAY_AND_TIME,
    MESSAGE_TEXT_LIMIT,
    clip,
    code,
    context,
    defang,
    defang_indicators,
    foreign,
    person_name,
    plain,
    section,
    slack_date,
)
from bot.redaction import MASK, RedactedView, Subject, tlp_name, withheld
from core.models import SEVERITY_NAMES, TLP_NAMES, Action, Alert, Artifact, Policy

TITLE_LIMIT = 300  # characters
MAX_RUNS, MAX_RUNS_CLOSED = 15, 1
MAX_RUN_CHARACTERS = 6000  # of JSON: Slack refuses a message whose blocks have about 12,000 (msg_blocks_too_long)
MAX_OBSERVABLES = 2
MAX_TAGS = 3
DESCRIPTION_LIMIT = 160
POLICY_LIMIT = 300  # characters
GREY = "#8d8d8d"  # closed
AMBER = "#d9a441"  # something waits for approval
SIGNS = ("", "🔵", "🟡", "🟠", "🔴")  # by severity, beside its name
COLORS = ("", "#4a90d9", "#d9a441", "#e0752d", "#c62f3b")  # by severity, which the card also names
CHANGES_ALERT = {"MarkAlertAsRead", "AddTagToAlert", "AddCustomFields"}  # operations
STATUS_WORDS = {"New": "new", "Ignored": "closed", "Imported": "made into a case", "Updated": "updated"}


def alert_card(
    alert: Alert,
    actions: Sequence[Action],
    *,
    total: int = 0,
    clearance: int,
    button: ButtonIds,
    now_ms: int,
    policies: Mapping[str, Policy] | None = None,
) -> Message:
    """The card as this clearance may see it; `total` counts all runs, if `actions` are only the newest.

    `policies` are those of the responders, by name: who approves reads there what a run does.
    """
    view = RedactedView(Subject.alert(alert), clearance)
    newest = runs.newest_first(actions)
    blocks: list[Block] = [headline(view, "press Details")]
    if view.is_open:
        blocks += _details(alert, view)
        blocks.append(_facts(alert, view, newest))
        blocks.append(_controls(alert, view, button))
        blocks += run_lines(newest, view, button, now_ms, alert, total=total, policies=policies or {})
    else:
        blocks.append(_controls(alert, view, button))
        if newest:
            blocks.append(context(runs.withheld_line(newest, max(total, len(newest)))))
    return Message(_push_notification(view, newest), tuple(blocks), _color(alert, newest))


def headline(view: RedactedView, hint: str = "") -> Block:
    """The severity and the linked title; if the title is withheld, the id and `hint`."""
    subject = view.subject
    word = f"{SIGNS[subject.severity]} *{SEVERITY_NAMES[subject.severity].upper()}*  " if subject.severity else ""
    if not view.is_open:
        return section(f"{word}{subject.id} · {withheld(subject.tlp)}" + (f": {hint}" if hint else ""))
    # A `|` in a link's label would end it, a `*` its bold.
    title = (foreign(view.title(), TITLE_LIMIT) or "(no title)").replace("|", "¦").replace("*", "∗")
    url = safe_link(view.link())
    return section(f"{word}*<{url}|{title}>*" if url else f"{word}*{title}*")


def safe_link(link: str) -> str:
    """A URL that can be used in `<url|label>`; "" if this one can't."""
    try:
        parts = urlsplit(link)
    except ValueError:
        return ""
    forbidden = MASK in link or any(c in link for c in '<>|"`') or any(c.isspace() or ord(c) < 32 for c in link)
    is_safe = parts.scheme in ("http", "https") and parts.netloc and not forbidden and len(link) <= 1000
    return link.replace("&", "&amp;") if is_safe else ""


def _details(alert: Alert, view: RedactedView) -> list[Block]:
    """Two lines of the description and the first observables; nothing of an alert that is closed."""
    if is_closed(alert):
        return []
    lines = [foreign(defang_indicators(view.text(alert.description)), DESCRIPTION_LIMIT), *_observables(view)]
    text = "\n".join(line for line in lines if line)
    return [section(text)] if text else []


def _observables(view: RedactedView) -> list[str]:
    """The first observables, those that are an IOC before others."""
    found = sorted(view.artifacts(), key=lambda a: not a.ioc)
    lines = [_observable(artifact, view) for artifact in found[:MAX_OBSERVABLES]]
    more = [f"+ {len(found) - len(lines)} more in Details"] if len(found) > len(lines) else []
    if hidden := view.hidden_count():
        more.append(f"{hidden} withheld ({tlp_name(max(a.tlp for a in view.subject.artifacts))})")
    if lines and more:
        return [*lines[:-1], " · ".join([lines[-1], *more])]
    return [*lines, *more]


def _observable(artifact: Artifact, view: RedactedView) -> str:
    parts = [
        f"{foreign(artifact.data_type, 30)} {code(defang(view.text(artifact.label)[:400], artifact.data_type), 120)}"
    ]
    if artifact.message:
        parts.append(foreign(view.text(artifact.message), 60))
    return " · ".join([*parts, *(["*IOC*"] if artifact.ioc else [])])


def _facts(alert: Alert, view: RedactedView, newest: Sequence[Action]) -> Block:
    """One line: source, levels, status, owner, when, id, tags."""
    owner = f"*{person_name(alert.assignee)}* works on it" if alert.assignee and not is_closed(alert) else ""
    levels = f"TLP:{TLP_NAMES[alert.tlp].upper()} PAP:{TLP_NAMES[alert.pap].upper()}"
    raised = f"raised {slack_date(alert.date, DAY_AND_TIME)} ({slack_date(alert.date, '{ago}')})"
    parts = [foreign(view.text(alert.source), 80), levels, _status(alert, newest), owner, raised, alert.id]
    return context(" · ".join(part for part in [*parts, _tags(alert.tags, view)] if part))


def is_closed(alert: Alert) -> bool:
    return alert.status in ("Ignored", "Imported")


def _status(alert: Alert, newest: Sequence[Action]) -> str:
    if not is_closed(alert):
        return STATUS_WORDS[alert.status]
    word = f"made into case {alert.case}" if alert.status == "Imported" and alert.case else STATUS_WORDS[alert.status]
    if alert.updated_at is None:
        return f"*{word}*"
    return f"*{word}* by {_changed_by(alert, newest)}, {slack_date(alert.updated_at, DAY_AND_TIME)}"


def _changed_by(alert: Alert, newest: Sequence[Action]) -> str:
    """Who changed the alert last; if a run did, also which."""
    person = person_name(alert.updated_by or "")
    # Core applies a run's operations in the transaction that ends it: with its end date, by its requester.
    ended = (a for a in newest if a.end_date == alert.updated_at and a.created_by == alert.updated_by)
    run = next((a for a in ended if reports.applied_operations(a) & CHANGES_ALERT), None)
    return f"{person} ({runs.name(run)})" if run is not None else person


def _tags(tags: Sequence[str], view: RedactedView) -> str:
    shown = [f"#{foreign(view.text(tag), 40)}" for tag in tags[:MAX_TAGS]]
    return " ".join(shown) + (f" and {len(tags) - len(shown)} more" if len(tags) > len(shown) else "")


def _controls(alert: Alert, view: RedactedView, button: ButtonIds) -> Block:
    """The menu of responders, Take it, Details, and the overflow menu with what applies now."""
    return {
        "type": "actions",
        "block_id": ids.MENU_BLOCK + button(Intent("menu", alert.id, "alert")),
        "elements": [
            responder_menu("Run a responder"),
            *([_owner_button(alert, button)] if view.is_open and not is_closed(alert) else []),
            _details_button(alert, button),
            _overflow(alert, button),
        ],
    }


def _owner_button(alert: Alert, button: ButtonIds) -> dict[str, Any]:
    """Take it, or Release for the one who did; somebody else who presses Release is asked whether to take it over."""
    words, what, action_id = ("Release", "release", ids.RELEASE) if alert.assignee else ("Take it", "take", ids.TAKE)
    return {"type": "button", "action_id": action_id, "text": plain(words), "value": button(Intent(what, alert.id))}


def _details_button(alert: Alert, button: ButtonIds) -> dict[str, Any]:
    """Shows the alert to the person who clicks, as far as they may see it; so also on a withheld card."""
    value = button(Intent("details", alert.id))
    return {"type": "button", "action_id": ids.DETAILS, "text": plain("Details"), "value": value}


def responder_menu(placeholder: str, action_id: str = ids.MENU) -> dict[str, Any]:
    """The searchable menu. Its entries are loaded when it is opened, before anything is typed."""
    return {
        "type": "external_select",
        "action_id": action_id,
        "placeholder": plain(clip(placeholder, 75)),
        "min_query_length": 0,
    }


def _overflow(alert: Alert, button: ButtonIds) -> dict[str, Any]:
    entries = [("What ran here", Intent("actions", alert.id)), ("Watch", Intent("watch", alert.id))]
    if alert.status == "Ignored":
        entries.append(("Reopen", Intent("unread", alert.id)))
    elif alert.status != "Imported":
        entries.append(("Close", Intent("read", alert.id)))
    if not alert.case and alert.status != "Imported":
        entries.append(("Make a case", Intent("case", alert.id)))
    entries.append(("Refresh", Intent("refresh", alert.id)))
    options = [{"text": plain(text), "value": button(intent)} for text, intent in entries]
    return {"type": "overflow", "action_id": ids.MORE, "options": options}


def run_lines(
    newest: Sequence[Action],
    view: RedactedView,
    button: ButtonIds,
    now_ms: int,
    alert: Alert,
    *,
    policies: Mapping[str, Policy],
    total: int = 0,
) -> list[Block]:
    """Open runs with what can be done about them, then one line for each responder whose runs have ended."""
    groups = [[action] for action in newest if runs.is_open(action)]
    groups += _by_responder([action for action in newest if not runs.is_open(action)])
    blocks: list[Block] = []
    characters = 0
    for number, group in enumerate(groups):
        made = _runs(group, view, button, now_ms, policies, can_repeat=not is_closed(alert))
        characters += len(json.dumps(made, ensure_ascii=False))
        if number == (MAX_RUNS_CLOSED if is_closed(alert) and not runs.is_open(group[0]) else MAX_RUNS) or (
            characters > MAX_RUN_CHARACTERS
        ):
            rest = [action for left in groups[number:] for action in left]
            left = runs.summary(rest, len(rest) + max(total - len(newest), 0))
            return [*blocks, context(f"and {left} more: `/responder actions {alert.id}` shows all.")]
        blocks += made
    return blocks


def _by_responder(ended: Sequence[Action]) -> list[list[Action]]:
    found: dict[str, list[Action]] = {}
    for action in ended:
        found.setdefault(action.responder_name, []).append(action)
    return list(found.values())


def _runs(
    group: Sequence[Action],
    view: RedactedView,
    button: ButtonIds,
    now_ms: int,
    policies: Mapping[str, Policy],
    *,
    can_repeat: bool,
) -> list[Block]:
    """An open run, or the ended ones of one responder, newest first."""
    action, block_id = group[0], f"run:{group[0].id}"
    policy = policies.get(action.responder_name)
    confirm = policy.confirm if policy else ""
    text = runs.run_line(action, view, now_ms=now_ms) if len(group) == 1 else runs.group_line(group, view)
    if not runs.is_open(action):
        again = run_again_button(action, view, button, confirm) if can_repeat else None
        if again is None:
            return [{**context(text), "block_id": block_id}]
        return [{**section(text), "block_id": block_id, "accessory": again}]
    end = runs.end_button(action, button)
    if not runs.can_be_approved(action, view, now_ms):
        return [{**section(text), "block_id": block_id, "accessory": end}]
    if confirm:
        text += f"\n{foreign(confirm, POLICY_LIMIT)}"
    buttons = {"type": "actions", "elements": [*runs.decision_buttons(action, button), end]}
    return [{**section(text), "block_id": block_id}, buttons]


def run_again_button(action: Action, view: RedactedView, button: ButtonIds, confirm: str) -> dict[str, Any] | None:
    """Repeats the run with its inputs, after a question; None where nobody would want that, or it is withheld.

    `confirm` is the text of its policy.
    """
    if runs.state_of(action) not in runs.WORTH_REPEATING or not view.is_open:
        return None
    again: dict[str, Any] = {
        "type": "button",
        "action_id": ids.numbered(ids.RUN_AGAIN, action.id),
        "text": plain("Run again"),
        "value": button(Intent("run_again", action.id, "confirmed" if confirm else "")),
    }
    if not action.inputs and (confirm or runs.given_inputs(action)):  # a form asks for declared ones
        again["confirm"] = runs.confirm_dialog(action, view, confirm)
    return again


def _push_notification(view: RedactedView, newest: Sequence[Action]) -> str:
    """The push notification: the title, as far as it may be shown, and the state of the run that matters most."""
    subject = view.subject
    word = f"{SEVERITY_NAMES[subject.severity].capitalize()} alert" if subject.severity else "Alert"
    text = f"{word} {subject.id}: {foreign(view.title(), TITLE_LIMIT)}"
    if newest:
        asked = next((action for action in newest if runs.awaits_approval(action)), newest[0])
        text += f" · {runs.plain_line(asked, view)}"
    return clip(text, MESSAGE_TEXT_LIMIT)


def _color(alert: Alert, newest: Sequence[Action]) -> str:
    """Grey only once nothing is left to do."""
    if not is_closed(alert):
        return COLORS[alert.severity]
    return AMBER if any(runs.awaits_approval(action) for action in newest) else GREY
