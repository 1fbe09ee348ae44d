"""The card of an alert: one message that is kept current, with a line for each run."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from bot.cards import ids, reports, runs
from bot.cards.message import Block, ButtonIds, Intent, Message
from bot.cards.text import (
    FIELD_LIMIT,
    MESSAGE_TEXT_LIMIT,
    clip,
    code,
    context,
    defang,
    foreign,
    mrkdwn,
    person_name,
    plain,
    section,
    slack_date,
)
from bot.redaction import MASK, RedactedView, Subject, withheld
from core.models import SEVERITY_NAMES, TLP_NAMES, Action, Alert, Policy

TITLE_LIMIT = 300  # characters
MAX_RUNS = 15
MAX_RUN_CHARACTERS = 6000  # of JSON: Slack refuses a message whose blocks have about 12,000 (msg_blocks_too_long)
MAX_ARTIFACTS = 3
MAX_TAGS = 8
POLICY_LIMIT = 300  # characters
GREY = "#8d8d8d"  # closed
COLORS = ("", "#4a90d9", "#d9a441", "#e0752d", "#c62f3b")  # by severity, which the card also names
RUN_CHANGED = {"MarkAlertAsRead": "Marked as read", "AddTagToAlert": "Tagged", "AddCustomFields": "Changed"}
STATUS_WORDS = {"New": "new", "Ignored": "read", "Imported": "made into a case", "Updated": "updated"}


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
    blocks: list[Block] = [headline(view, "press Details"), *_details(alert, view), _last_change(alert, newest)]
    blocks.append(_controls(alert, button))
    blocks += run_lines(newest, view, button, now_ms, alert.id, total=total, policies=policies or {})
    color = GREY if alert.status in ("Ignored", "Imported") else COLORS[alert.severity]
    return Message(_push_notification(view, newest), tuple(blocks), color)


def headline(view: RedactedView, hint: str = "") -> Block:
    """The severity and the linked title; if the title is withheld, the id and `hint`."""
    subject = view.subject
    word = f"*{SEVERITY_NAMES[subject.severity].upper()}* · " if subject.severity else ""
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
    if not view.is_open:
        return []
    status = STATUS_WORDS[alert.status]
    if alert.status == "Imported" and alert.case:
        status = f"{status} {alert.case}"
    tags = [code(view.text(tag), 60) for tag in alert.tags[:MAX_TAGS]]
    fields = {
        "Source": foreign(view.text(f"{alert.source} · {alert.source_ref}"), 150),
        "TLP / PAP": f"{TLP_NAMES[alert.tlp]} / {TLP_NAMES[alert.pap]}",
        "Status": status,
        "Raised": slack_date(alert.date, "{ago}"),
        "Tags": " ".join(tags) + _more(len(alert.tags) - len(tags)),
        "Artifacts": _artifacts(view),
    }
    shown = [mrkdwn(clip(f"*{name}*\n{value}", FIELD_LIMIT)) for name, value in fields.items() if value]
    return [{"type": "section", "fields": shown}]


def _artifacts(view: RedactedView) -> str:
    visible = view.artifacts()
    lines = [
        f"{foreign(a.data_type, 30)} {code(defang(view.text(a.label)[:400], a.data_type), 160)}"
        for a in visible[:MAX_ARTIFACTS]
    ]
    if more := _more(len(visible) - len(lines)):
        lines.append(more.strip())
    if hidden := view.hidden_count():
        lines.append(f"{hidden} withheld (TLP:{TLP_NAMES[max(a.tlp for a in view.subject.artifacts)].upper()})")
    return "\n".join(lines)


def _more(left: int) -> str:
    return f" and {left} more" if left > 0 else ""


def _last_change(alert: Alert, newest: Sequence[Action]) -> Block:
    """What changed last, by whom and when."""
    changes = [(alert.created_at, f"Raised by {person_name(alert.created_by)}")]
    if alert.updated_at is not None:
        changes.append((alert.updated_at, _change(alert, newest)))
    changes += [_run_event(action) for action in newest]
    at, words = max(changes, key=lambda change: change[0])
    return context(f"{alert.id} · {words} · {slack_date(at, '{date_short_pretty} {time}')}")


def _change(alert: Alert, newest: Sequence[Action]) -> str:
    """The last change of the alert itself; if a run made it, also which run."""
    person = person_name(alert.updated_by or "")
    # Core applies a run's operations in the transaction that ends it: with its end date, by its requester.
    ended = [a for a in newest if a.end_date == alert.updated_at and a.created_by == alert.updated_by]
    for action in ended:
        kinds = reports.applied_operations(action)
        word = next((word for kind, word in RUN_CHANGED.items() if kind in kinds), "")
        if word:
            return f"{word} by {foreign(action.responder_name, runs.NAME_LIMIT)} ({person})"
    word = {"Ignored": "Marked as read", "Imported": "Made into a case"}.get(alert.status, "Changed")
    return f"{word} by {person}"


def _run_event(action: Action) -> tuple[int, str]:
    name = foreign(action.responder_name, runs.NAME_LIMIT)
    if action.end_date is None:
        verb = "asks for approval of" if runs.awaits_approval(action) else "started"
        return action.start_date, f"{person_name(action.created_by)} {verb} {name}"
    return action.end_date, f"{name} {runs.STATE_WORDS[action.status]}, started by {person_name(action.created_by)}"


def _controls(alert: Alert, button: ButtonIds) -> Block:
    """The menu of responders, Details, and the overflow menu with what applies now."""
    # Details are for the person who clicks, as far as they may see them; so also on a withheld card.
    details = {
        "type": "button",
        "action_id": ids.DETAILS,
        "text": plain("Details"),
        "value": button(Intent("details", alert.id)),
    }
    return {
        "type": "actions",
        "block_id": ids.MENU_BLOCK + button(Intent("menu", alert.id, "alert")),
        "elements": [responder_menu("Run a responder"), details, _overflow(alert, button)],
    }


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
        entries.append(("Mark as unread", Intent("unread", alert.id)))
    elif alert.status != "Imported":
        entries.append(("Mark as read", Intent("read", alert.id)))
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
    root_id: str,
    *,
    policies: Mapping[str, Policy],
    total: int = 0,
) -> list[Block]:
    """One line for each run, open ones first, with Approve, Deny and Cancel for those that wait."""
    ordered = [a for a in newest if runs.is_open(a)] + [a for a in newest if not runs.is_open(a)]
    blocks: list[Block] = []
    characters = 0
    for number, action in enumerate(ordered):
        made = _run(action, view, button, now_ms, policies)
        characters += len(json.dumps(made, ensure_ascii=False))
        if number == MAX_RUNS or characters > MAX_RUN_CHARACTERS:
            left = runs.summary(ordered[number:], max(total, len(ordered)) - number)
            return [*blocks, context(f"and {left} more: `/responder actions {root_id}` shows all.")]
        blocks += made
    return blocks


def _run(
    action: Action, view: RedactedView, button: ButtonIds, now_ms: int, policies: Mapping[str, Policy]
) -> list[Block]:
    text, block_id = runs.run_line(action, view, now_ms=now_ms), f"run:{action.id}"
    if action.status != "Waiting":
        return [{**context(text), "block_id": block_id}]
    cancel = runs.cancel_button(action, button)
    if not runs.can_be_approved(action, view, now_ms):
        return [{**section(text), "block_id": block_id, "accessory": cancel}]
    policy = policies.get(action.responder_name)
    if policy and policy.confirm:
        text += f"\n{foreign(policy.confirm, POLICY_LIMIT)}"
    buttons = {"type": "actions", "elements": [*runs.decision_buttons(action, button), cancel]}
    return [{**section(text), "block_id": block_id}, buttons]


def _push_notification(view: RedactedView, newest: Sequence[Action]) -> str:
    """The push notification: the title, as far as it may be shown, and the state of the last run."""
    subject = view.subject
    word = f"{SEVERITY_NAMES[subject.severity].capitalize()} alert" if subject.severity else "Alert"
    text = f"{word} {subject.id}: {foreign(view.title(), TITLE_LIMIT)}"
    if newest:
        text += f" · {runs.plain_line(newest[0], view)}"
    return clip(text, MESSAGE_TEXT_LIMIT)
