"""What one person asked for: responders with reasons, menus of them, actions, an alert in full."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.cards import ids, names, notices, runs
from bot.cards.alert import STATUS_WORDS, by_ioc, headline, observable, responder_menu, status_line, with_menu
from bot.cards.elements import actions, button_element
from bot.cards.message import Block, ButtonIds, Intent, Message
from bot.cards.text import (
    DAY_AND_TIME,
    OPTION_LIMIT,
    clip_middle,
    code,
    context,
    count,
    defang_indicators,
    foreign,
    foreign_plain,
    person_name,
    plain,
    section,
    slack_date,
    strip_markup,
    utc_time,
)
from bot.redaction import RedactedView, Subject, artifact_title, may_see, refanged, withheld
from core.models import OBJECT_TYPES, TLP_NAMES, Action, Alert, Hold, OfferedResponder

MAX_OPTIONS = 100
MAX_LINES = 40
FOUND_TEXT_LIMIT = 500  # characters of what somebody looked for
MAX_TITLES = 6  # of responders, in the line of an artifact
HEADING_LIMIT = 44  # characters of an artifact above its entries of a menu, which is one line on a phone
ARTIFACTS_SHOWN = 40  # in Details at once
CANNOT = "Can't run, because ..."
NOTHING = "none"  # the value of an option that only says something


def split(offered: Sequence[OfferedResponder]) -> tuple[list[OfferedResponder], list[OfferedResponder]]:
    """Those that can run and those that can't, each by title."""
    ordered = _by_title(offered)
    return [r for r in ordered if r.can_run], [r for r in ordered if not r.can_run]


def _by_title(offered: Sequence[OfferedResponder]) -> list[OfferedResponder]:
    return sorted(offered, key=lambda r: (names.title(r).casefold(), r.name))


def responder_list(
    offered: Sequence[OfferedResponder],
    by_artifact: Mapping[str, Sequence[str]],
    subject: Subject,
    *,
    clearance: int,
    button: ButtonIds,
    command: str,
    refused: str = "",
    who: str = "",
    channel: str = "",
) -> Message:
    """What can run on an object, what on each artifact of an alert, and why the rest can't run.

    `by_artifact` as in `responder_options`; `refused` is why this person can't run anything; `who` can open it if this
    person can't; `channel` is where they asked.
    """
    view = RedactedView(subject, clearance)
    if not view.is_open:
        return notices.error(notices.withheld_from(clearance, who))
    if refused:
        for_others = [names.shown(r) for r in split(offered)[1] if not r.refusals and len(r.reasons or []) == 1][
            :MAX_LINES
        ]
        others = [context(f"Others can run {', '.join(for_others)}.")] if for_others else []
        return Message(refused, (_about(view), section(foreign(refused, 500)), *others))
    can, cannot = split(offered)
    on_artifacts, elsewhere = _on_artifacts(offered, by_artifact, view)
    cannot = [r for r in cannot if r.name not in elsewhere]
    text = f"{count(len(can), 'responder')} can run on {subject.id}" + (f", {len(cannot)} can't" if cannot else "")
    blocks: list[Block] = [_about(view)]
    blocks += _lines(f"*Can run ({len(can)})*", [_can_line(r) for r in can])
    if not can:
        blocks.append(section(f"Nothing can run on {subject.id} now."))
    blocks += _lines(f"*On its observables ({len(on_artifacts)})*", on_artifacts)
    why_not = [f"✗ *{names.shown(r)}*: {shown_reasons(r, view, 300)}" for r in cannot]
    blocks += _lines(f"*Can't run ({len(cannot)})*", why_not)
    if can or elsewhere:
        blocks.append(_menu_block(view, button, channel))
        first = can[0] if can else next(r for r in offered if r.name in elsewhere)
        on_what = subject.id if can else f"{subject.id} and an observable"
        blocks.append(context(f"Or type {code(f'{command} run {names.example(first)} {on_what}', 200)}."))
    return Message(text, tuple(blocks))


def _about(view: RedactedView) -> Block:
    subject = view.subject
    about = f"{OBJECT_TYPES[subject.kind]} {subject.id} · {foreign(view.title(), 300)}"
    return headline(view) if subject.kind == "alert" else section(about)


def _on_artifacts(
    offered: Sequence[OfferedResponder], by_artifact: Mapping[str, Sequence[str]], view: RedactedView
) -> tuple[list[str], set[str]]:
    """A line for each artifact that may be shown and that something can run on, and the names of those responders."""
    lines: list[str] = []
    elsewhere: set[str] = set()
    shown = {r.name: names.shown(r) for r in _by_title(offered)}
    for artifact in by_ioc(view.artifacts()):
        runnable = set(by_artifact.get(artifact.id, ()))
        titles = [title for name, title in shown.items() if name in runnable]
        if titles:
            more = f" and {len(titles) - MAX_TITLES} more" if len(titles) > MAX_TITLES else ""
            line = foreign(view.text(artifact_title(artifact)), 120)
            lines.append(f"• {line} ({artifact.id}): {', '.join(titles[:MAX_TITLES])}{more}")
            elsewhere |= runnable & shown.keys()
    return lines, elsewhere


def _can_line(responder: OfferedResponder) -> str:
    about = foreign(responder.description, 160)
    notes = [*(responder.reasons or []), *_asks(responder)]
    line = f"✓ *{names.shown(responder)}*" + (f" – {about}" if about else "")
    return line + (f" _({foreign('; '.join(notes), 200)})_" if notes else "")


def _asks(responder: OfferedResponder) -> list[str]:
    policy = responder.policy
    asks = [f"takes {count(len(responder.parameters), 'input')}"] if responder.parameters else []
    if policy is None:
        return asks
    asks += ["asks first"] if policy.confirm else []
    return asks + ([f"needs {count(policy.approval, 'approval')}"] if policy.approval else [])


def reasons(responder: OfferedResponder, view: RedactedView) -> str:
    """Why it can't run on the view's subject, as far as that may be shown; foreign text, not escaped.

    A reason may name an artifact, such as one that is protected.
    """
    return _until(responder, lambda at: f"at {utc_time(at)}") + _why_not(responder, view)


def shown_reasons(responder: OfferedResponder, view: RedactedView, limit: int) -> str:
    """Likewise as mrkdwn, with the time at which its rates are free again in each reader's time."""
    return _until(responder, lambda at: slack_date(at, DAY_AND_TIME)) + foreign(_why_not(responder, view), limit)


def _until(responder: OfferedResponder, shown: Callable[[int], str]) -> str:
    times = [refusal.until for refusal in responder.refusals or () if refusal.until is not None]
    return f"free again {shown(max(times))}; " if times else ""


def _why_not(responder: OfferedResponder, view: RedactedView) -> str:
    refusals = responder.refusals or ()
    lifts = dict.fromkeys(refusal.lift for refusal in refusals)
    sentences = [*(refusal.message for refusal in refusals), *lifts, *(responder.reasons or ())]
    return view.text("; ".join(sentences)) or "it gives no reason"


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


@dataclass(frozen=True)
class _Entries:
    """Entries of a menu under one heading, each with the responder and what can be typed to find it."""

    label: str
    entries: Sequence[tuple[OfferedResponder, str]]
    target: str = ""  # in front of the values of its options
    about: Callable[[OfferedResponder], str] = lambda responder: strip_markup(responder.description)


def responder_options(
    offered: Sequence[OfferedResponder], by_artifact: Mapping[str, Sequence[str]], view: RedactedView, typed: str
) -> dict[str, Any]:
    """The entries of a menu, grouped by what they run on: the subject, then each artifact that may be shown.

    `by_artifact` has the names of the responders that can run on each artifact of an alert. All words of `typed` must
    be found in the responder's title, name or description, or in the target's type or data. Of the subject those that
    can't run follow at the end, with the reasons. Slack takes 100 entries; the last of more says to type.
    """
    words = refanged(typed).casefold().split()
    groups = [
        replace(group, entries=[entry for entry in group.entries if all(word in entry[1] for word in words)])
        for group in _groups(offered, by_artifact, view)
    ]
    left = sum(len(group.entries) for group in groups)
    room = MAX_OPTIONS if left <= MAX_OPTIONS else MAX_OPTIONS - 1
    shown = []
    for group in groups:
        options = [_option(r, group.about(r), group.target) for r, _ in group.entries[:room]]
        room, left = room - len(options), left - len(options)
        if options:
            shown.append({"label": plain(foreign_plain(group.label, OPTION_LIMIT)), "options": options})
    if left:
        more = message_option("Type a responder, an address or a data type to find them.")
        shown.append({"label": plain(f"{left} more"), **more})
    return {"option_groups": shown} if shown else {"options": []}


def _groups(
    offered: Sequence[OfferedResponder], by_artifact: Mapping[str, Sequence[str]], view: RedactedView
) -> list[_Entries]:
    can, cannot = split(offered)
    found = {r.name: " ".join([*names.typed_names(r), r.description]).casefold() for r in offered}
    subject = view.subject
    is_artifact = subject.kind == "case_artifact"
    label = view.title() if is_artifact else f"{OBJECT_TYPES[subject.kind]} {subject.id}"
    own = refanged(label).casefold()
    groups = [_Entries(label, _with(own, can, found))]
    elsewhere: set[str] = set()
    ordered = _by_title(offered)
    for artifact in by_ioc(view.artifacts()) if by_artifact else []:
        runnable = set(by_artifact.get(artifact.id, ()))
        elsewhere |= runnable
        target = refanged(view.text("\n".join([artifact.data_type, *artifact.texts]))).casefold()
        responders = [r for r in ordered if r.name in runnable]
        heading = clip_middle(view.text(artifact_title(artifact)), HEADING_LIMIT)
        groups.append(_Entries(heading, _with(target, responders, found), f"{artifact.id}:"))
    if is_artifact:  # why it can't take a domain is told to nobody who asks about an address
        cannot = [r for r in cannot if any(subject.title.startswith(f"{kind} ") for kind in r.data_type_list)]
    cannot = [r for r in cannot if r.name not in elsewhere]
    return [*groups, _Entries(CANNOT, _with(own, cannot, found), about=lambda one: reasons(one, view))]


def _with(
    target: str, responders: Sequence[OfferedResponder], found: Mapping[str, str]
) -> list[tuple[OfferedResponder, str]]:
    return [(r, f"{target}\n{found[r.name]}") for r in responders]


def message_option(words: str) -> dict[str, Any]:
    """A sentence as the only entry of a menu; choosing it runs nothing."""
    return {"options": [{"text": plain(foreign_plain(words, OPTION_LIMIT)), "value": NOTHING}]}


def _option(responder: OfferedResponder, about: str, target: str) -> dict[str, Any]:
    option: dict[str, Any] = {
        "text": plain(foreign_plain(names.title(responder), OPTION_LIMIT)),
        "value": target + option_value(responder),
    }
    if about.strip():
        option["description"] = plain(foreign_plain(about, OPTION_LIMIT))
    return option


def responder_option(responder: OfferedResponder) -> dict[str, Any]:
    """A responder that can run, as an entry of a menu."""
    return _option(responder, strip_markup(responder.description), "")


def option_value(responder: OfferedResponder) -> str:
    """A hash of a responder's id, which may be longer than the 150 characters of an option's value."""
    return hashlib.sha256(responder.id.encode("utf-8", "replace")).hexdigest()[:32]


def responder_of_option(offered: Sequence[OfferedResponder], value: str) -> OfferedResponder | None:
    """The responder with this option value; None if it is no longer offered."""
    return next((r for r in offered if option_value(r) == value.rpartition(":")[2]), None)


def target_of_option(value: str) -> str:
    """The id of the artifact that an option runs on; "" where that is the subject of the menu."""
    return value.rpartition(":")[0]


# --- actions, an alert ----------------------------------------------------------------------------------------------


def action_list(
    actions: Sequence[Action], object_id: str, views: Mapping[str, RedactedView], *, total: int, now_ms: int
) -> Message:
    """What ran on an object, newest first: the open and the newest of `total` actions, `views` by what each ran on."""
    newest = runs.newest_first(actions)
    if not newest:
        return Message(f"Nothing ran on {object_id} yet.", (section(f"Nothing ran on {object_id} yet."),))
    lines = [f"{runs.run_line(a, views[a.object_id], now_ms=now_ms).rstrip('.')} · {a.id}" for a in newest]
    head = runs.summary(newest, total, on=f" on {object_id}")
    parts = _lines(f"*{head}*", lines[:MAX_LINES])
    if total > len(lines[:MAX_LINES]):
        parts.append(context(f"and {total - len(lines[:MAX_LINES])} earlier ones."))
    return Message(head, tuple(parts))


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
        blocks += _lines("*Facts*", _facts(alert, view))
    blocks += [_menu_block(view, button, channel), *_artifacts(view, button, start, channel)]
    if note:
        blocks.append(context(note))
    return Message(f"Alert {alert.id}: {foreign(view.title(), 300)}", tuple(blocks))


def _menu_block(view: RedactedView, button: ButtonIds, channel: str) -> Block:
    """The menu of what can run on a subject and its artifacts, and what leads to a run on several of these."""
    subject = view.subject
    others = [one for one in subject.others if may_see(view.clearance, one.tlp)] if subject.kind == "case" else ()
    has_several = len({one.id for one in (*view.artifacts(), *others)}) > 1 and subject.kind in ("alert", "case")
    several = [_several_button(Intent("several", subject.id, channel), button)] if has_several else []
    return {
        "type": "actions",
        "block_id": ids.MENU_BLOCK + button(Intent("menu", subject.id, subject.kind)),
        "elements": [responder_menu("Run a responder"), *several],
    }


def _several_button(intent: Intent, button: ButtonIds) -> dict[str, Any]:
    """Opens the modal in which one chooses what to run on."""
    return button_element("Run on several", ids.SEVERAL, button(intent))


def found_alerts(
    alerts: Sequence[Alert], text: str, *, more: bool, clearance: int, button: ButtonIds, channel: str = ""
) -> Message:
    """Alerts that somebody in `channel` looked for, newest first, each with Details."""
    shown_text = code(text, 100)
    if not alerts:
        return notices.notice(f"No alert that you may see has {shown_text}.")
    blocks: list[Block] = [section(f"*{count(len(alerts), 'alert')}* with {shown_text}, newest first")]
    for alert in alerts:
        view = RedactedView(Subject.alert(alert), clearance)
        blocks.append(
            section(
                f"{headline(view)['text']['text']}\n{alert.id} · {foreign(view.text(alert.source), 60)} · "
                f"{STATUS_WORDS[alert.status]} · {slack_date(alert.date, DAY_AND_TIME)}",
                accessory=button_element("Details", ids.DETAILS, button(Intent("details", alert.id)), of=alert.id),
            )
        )
    if len(alerts) > 1:
        several = Intent("several_found", "", f"{channel} {text[:FOUND_TEXT_LIMIT]}")
        blocks.append(actions(_several_button(several, button)))
    if more:
        blocks.append(context("There are more. Add a word to find fewer."))
    return Message(f"{count(len(alerts), 'alert')} with {shown_text}", tuple(blocks))


def _facts(alert: Alert, view: RedactedView) -> list[str]:
    facts: Mapping[str, str] = {
        "Source": foreign(view.text(f"{alert.type} · {alert.source} · {alert.source_ref}"), 300),
        "Status": status_line(alert, view),
        "Levels": f"TLP:{TLP_NAMES[alert.tlp].upper()} PAP:{TLP_NAMES[alert.pap].upper()}",
        "Tags": " ".join(code(view.text(tag), 60) for tag in alert.tags[:30]),
        "Raised": slack_date(alert.date, "{date_short_pretty} {time}"),
        "Created": f"{slack_date(alert.created_at, '{date_short_pretty} {time}')} by {person_name(alert.created_by)}",
        "Case": alert.case or "",
        "On hold": _hold(alert.hold, view) if alert.hold else "",
    }
    custom = {foreign(view.text(name), 60): _custom(value, view) for name, value in alert.custom_fields.items()}
    return [f"• {name}: {value}" for name, value in [*facts.items(), *list(custom.items())[:20]] if value]


def _hold(hold: Hold, view: RedactedView) -> str:
    by, since = person_name(hold.created_by), slack_date(hold.created_at, DAY_AND_TIME)
    return f"by {by} since {since}, so nothing is deleted: {foreign(view.text(hold.reason), 1000)}"


def _custom(value: Any, view: RedactedView) -> str:
    """The value of a custom field of any kind."""
    if isinstance(value, Mapping):
        value = next((v for k, v in value.items() if k not in ("order", "_id") and v is not None), "")
    return foreign(view.text(str(value)), 200)


def _artifacts(view: RedactedView, button: ButtonIds, start: int, channel: str) -> list[Block]:
    """Each artifact that may be shown, with its menu, and how many may not."""
    found = by_ioc(view.artifacts())
    shown = found[start : start + ARTIFACTS_SHOWN]
    if not view.subject.artifacts:
        return []
    place = f" {start + 1} to {start + len(shown)} of {len(found)}" if len(found) > len(shown) else ""
    blocks: list[Block] = [section(f"*Observables*{place}")]
    blocks += [with_menu(observable(a, view, 250, 120), a, button) for a in shown]
    if hidden := view.hidden_count():
        level = max(a.tlp for a in view.subject.artifacts)
        blocks.append(context(f"{count(hidden, 'observable')}: {withheld(level)}"))
    pages = [("Earlier ones", start - ARTIFACTS_SHOWN), ("More", start + ARTIFACTS_SHOWN)]
    buttons = [_page(words, at, view, button, channel) for words, at in pages if 0 <= at < len(found)]
    return [*blocks, actions(*buttons)] if buttons else blocks


def _page(words: str, start: int, view: RedactedView, button: ButtonIds, channel: str) -> dict[str, Any]:
    value = button(Intent("details", view.subject.id, f"{start} {channel}".strip()))
    return button_element(words, ids.DETAILS, value, of=str(start))
