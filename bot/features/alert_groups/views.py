"""The card of alerts that say the same, the digest of a storm, and the modal that lists their alerts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bot.block_kit import ids, modals
from bot.block_kit.elements import actions, button_element, overflow, pages
from bot.block_kit.subjects import SHORT_TITLE, SIGNS, headline, severities
from bot.block_kit.text import (
    MESSAGE_TEXT_LIMIT,
    clip,
    code,
    context,
    defang_indicators,
    duration,
    first_of,
    foreign,
    person_name,
    section,
    sections,
    slack_date,
)
from bot.clearance import RedactedView, Subject, defang, view_of_all
from bot.features.alerts.views import close as close_views
from bot.features.alerts.views.details import first_observables
from bot.features.cases import views as cases
from bot.features.responders.views import several_button
from bot.features.runs.views import runs
from bot.message import Block, ButtonIds, Intent, Message
from bot.storms import STORM_MS, GroupContent, Storm, common
from core.common.words import count
from core.models import SEVERITY_NAMES, Case, Document

MOST = 5  # of titles, sources and observables
PAGE = 10  # alerts in the modal
NO_ALERTS = "No alert is shown here any more."
TITLE_LIMIT = 200
MUTE = "Mute"
MUTES = (("1", "1 hour"), ("8", "8 hours"), ("morning", "Until morning"))
NOUNS = {"hostname": "hosts", "fqdn": "hosts", "ip": "addresses", "mail": "mail addresses", "domain": "domains"}


def group_card(content: GroupContent, *, button: ButtonIds, now_ms: int) -> Message:
    """The card of a group or a digest. Its texts are within the channel's clearance already."""
    if not content.count:
        return Message(NO_ALERTS, (section(NO_ALERTS),))
    head, *rest = _digest(content) if content.is_digest else _group(content)
    blocks = [head, *sections(filter(None, [_state(content, now_ms)])), *rest]
    blocks.append(_controls(content, button, now_ms))
    return Message(clip(summary(content), MESSAGE_TEXT_LIMIT), tuple(blocks))


def summary(content: GroupContent) -> str:
    """One line without markup, for the push notification and `doctor`."""
    number = f"{content.count:,} alerts"
    if content.is_digest:
        lasted = duration(content.last_at - content.first_at)
        return f"{number} in {lasted}: {severities(content.severities)}"
    title = foreign(_common_title(content), TITLE_LIMIT) if content.titles else "details withheld"
    return f"{number} that say the same ({severities(content.severities)}): {title}"


def _group(content: GroupContent) -> list[Block]:
    title = _title(_common_title(content)) if content.titles else "details withheld"
    what = f"{content.count:,} × {title}"
    head = what if content.is_closed else f"{_severity(content.severity)}  *{what}*"
    blocks: list[Block] = [section(f"{head}{_on_so_many(content)}")]
    times = f"first {slack_date(content.first_at)} · last {slack_date(content.last_at)}"
    blocks.append(context(f"{severities(content.severities)}{_cards(content)} · {times}"))
    if content.is_closed:
        return blocks
    is_mixed = max(content.severities.values()) < content.count and len(content.titles) > 1
    worst = _worst(content) if is_mixed else []  # else none is worse, or they read the same
    more = content.count - content.closed - len(worst)
    worst += [f"and {more:,} more"] if worst and more else []
    worst += first_of(content.left_open, MOST)
    facts = [one for one in content.facts if one[1] > 1 or not is_mixed]  # else each title names its own
    return [*blocks, *sections(filter(None, [*worst, _most("Observables", facts, content)]))]


def _digest(content: GroupContent) -> list[Block]:
    lasted = duration(content.last_at - content.first_at)
    blocks = [section(f"🌩 *{content.count:,} alerts in {lasted}*: {severities(content.severities)}")]
    times = f"{slack_date(content.first_at)} to {slack_date(content.last_at)}"
    blocks.append(context(f"{times} · more than Slack takes one by one{_cards(content)}"))
    lines = [
        *_worst(content),
        _most("Titles", [one for one in content.titles if one[1] > 1], content),
        _most("Sources", content.sources, content),
        _most("Observables", content.facts, content),
    ]
    return [*blocks, *sections(filter(None, lines))]


def _worst(content: GroupContent) -> list[str]:
    """`🔴 *CRITICAL* Wazuh 92052 on LT-0231 (~31)`: the first that are open, the most severe first."""
    return [f"{_severity(severity)} {_title(title)} ({root_id})" for severity, title, root_id in content.worst]


def _severity(severity: int) -> str:
    return f"{SIGNS[severity]} *{SEVERITY_NAMES[severity].upper()}*"


def _common_title(content: GroupContent) -> str:
    """The title of all; where words of theirs differ, without the numbers and addresses of these."""
    titles = [title.split() for title, _ in content.titles]
    if len(set(map(len, titles))) > 1:
        return common(content.titles[0][0])
    return " ".join(
        first if all(first == one for one in others) else common(first) for first, *others in zip(*titles, strict=True)
    )


def _on_so_many(content: GroupContent) -> str:
    """` · 59 hosts`: how many different ones the alerts are about, if each is known and they differ."""
    if content.sampled < content.count:
        return ""
    by_type = Counter(fact.partition(" ")[0] for fact, _ in content.facts)
    several = (f" · {by_type[data_type]} {noun}" for data_type, noun in NOUNS.items() if by_type[data_type] > 1)
    return next(several, "")


def _title(title: str) -> str:
    return foreign(defang_indicators(title), TITLE_LIMIT).replace("*", "∗") or "(no title)"


def _cards(content: GroupContent) -> str:
    own = f" · {content.cards:,} of them also on a card of {'its' if content.cards == 1 else 'their'} own"
    closed = f"*{content.closed:,} closed or in a case*"
    closed = f"✓ all {content.closed_by or 'closed or in a case'}" if content.is_closed else closed
    return own * bool(content.cards) + f" · {closed}" * bool(content.closed)


def _most(label: str, counts: Sequence[tuple[str, int]], content: GroupContent) -> str:
    """The most frequent values, such as `Sources: suricata 412 · edr 3`."""
    if not counts:
        return ""
    of = f" (of the newest {content.sampled})" if content.sampled < content.count else ""
    named = _observable if label == "Observables" else lambda value: foreign(defang_indicators(value), 80)
    shown = [f"{named(value)}{f' ×{number}' if number > 1 else ''}" for value, number in counts]
    return f"*{label}*{of}: {' · '.join(first_of(shown, MOST))}"


def _observable(value: str) -> str:
    data_type, _, data = value.partition(" ")
    return f"{foreign(data_type, 30)} {code(defang(data, data_type), 80)}"


def _state(content: GroupContent, now_ms: int) -> str:
    if content.is_digest and now_ms - content.last_at >= STORM_MS:
        return f"The storm is over: no alert has come in here for {STORM_MS // 60_000} min."
    if content.muted_until > now_ms:
        by = f" by {person_name(content.muted_by)}" if content.muted_by else ""
        until = f"🔕 *Muted{by} until {slack_date(content.muted_until)}* (*Unmute* in …)"
        return f"{until}: what comes before that is counted here, critical alerts get cards of their own."
    return ""


def mute_view(content: GroupContent) -> dict[str, Any]:
    """Asks for how long, and says what muting does."""
    what = _title(_common_title(content)) if content.titles else "details withheld"
    lines = (
        f"{_severity(content.severity)} *{what}*",
        "For the time below, alerts like these post no cards here, for anybody.",
        "The card of this group counts them, and says who muted it.",
        "A CRITICAL one still gets a card of its own, and who the channel mentions is still mentioned.",
        "Nothing is closed. *Unmute*, in the menu of the card, ends it at once.",
    )
    blocks = [*sections(lines), modals.choice_field("mute", "How long", MUTES, MUTES[0][0])]
    return modals.ask(MUTE, ids.MUTE_VIEW, content.key, blocks)


def _controls(content: GroupContent, button: ButtonIds, now_ms: int) -> Block:
    key, is_muted = content.key, content.muted_until > now_ms
    mute = ("Unmute", Intent("group_unmute", key)) if is_muted else ("Mute ...", Intent("group_mute", key))
    reopen = (close_views.REOPEN, Intent("group_reopen", key))
    elements = [button_element("Show alerts", ids.GROUP_ALERTS, button(Intent("group_alerts", key, "0")))]
    if content.is_closed:
        back = button_element(close_views.REOPEN, ids.GROUP_READ, button(reopen[1]))
        elements.append(cases.case_button(content.case, button) if content.case else back)
        entries = [mute] * is_muted
    else:
        elements.append(button_element("Run on all", ids.GROUP_RUN, button(Intent("group_run", key))))
        elements.append(button_element("Close all", ids.GROUP_READ, button(Intent("group_read", key))))
        if any(line.startswith("⏳") for line in content.left_open):
            elements.append(button_element("Approvals", ids.PENDING))
        entries = [(cases.ONE, Intent("group_case", key)), *[reopen] * bool(content.closed)]
        entries += [mute] * (not content.is_digest)
    more = [overflow(ids.GROUP_MORE, entries, button)] if entries else []
    return actions(*elements, *more)


@dataclass(frozen=True)
class ListedAlert:
    """An alert of a group; its document is None if core doesn't know it any more."""

    id: str
    document: Document | None
    at: int
    link: str = ""  # of its own card


def alerts_page(
    content: GroupContent, alerts: Sequence[ListedAlert], offset: int, *, clearance: int, button: ButtonIds
) -> Message:
    """A page of the alerts of a group, worst first, for somebody with this clearance."""
    key, last = content.key, offset + len(alerts)
    numbers = f"{offset + 1:,} to {last:,}" if alerts else "None"
    text = f"{numbers} of {content.count:,} alerts, worst first"
    blocks: list[Block] = [context(text)]
    for alert in alerts:
        blocks += _listed(alert, key.rpartition(":")[2], clearance, button)
    others = pages(ids.GROUP_ALERTS, Intent("group_alerts", key), offset, PAGE, content.count, button)
    several = several_button(Intent("several_of_group", key, key.rpartition(":")[2]), button)
    blocks.append(actions(*others, several))
    return Message(text, tuple(blocks))


def _listed(alert: ListedAlert, channel: str, clearance: int, button: ButtonIds) -> list[Block]:
    if alert.document is None or (subject := Subject.in_document(alert.document, alert.id)) is None:
        return [section(f"{alert.id} · deleted since")]
    view = RedactedView(subject, clearance)
    head, on = headline(view, limit=SHORT_TITLE), first_observables(view)
    card = f"<{alert.link}|its card>" if alert.link else ""
    facts = " · ".join(part for part in (*on, alert.id, slack_date(alert.at), card) if part)
    about = context("\n".join([facts, *first_of(close_views.left_open([alert.document], clearance), MOST)]))
    if card:
        return [head, about]
    lift = button_element(
        "Own card", ids.GROUP_CARD, button(Intent("group_card", alert.id, channel)), of=alert.id, about=alert.id
    )
    return [{**head, "accessory": lift}, about]


def become_case(key: str, alerts: Sequence[RedactedView], case: Case | None) -> list[str]:
    """What happens to these alerts, the worst first: they go into the case, or a new one; mrkdwn."""
    new = "The case has the title and the severity of the worst, and is yours."
    into = f"They go into case {case.id}, where others of these are." if case else new
    more = cases.shows_more(alerts, case.tlp if case else alerts[0].subject.tlp)
    return [*close_views.several(key, alerts), *more, f"{into} They leave the open alerts; no button takes one out."]


def closed_by_one(alerts: Sequence[RedactedView]) -> str:
    """`closed by anna, 8:10 PM: "an exercise"`; "" unless one person closed all of these for one reason; mrkdwn."""
    closings = [view.subject.closed for view in alerts if view.is_open and view.subject.closed]
    if len(closings) < len(alerts) or len({(closing.by, closing.why) for closing in closings}) != 1:
        return ""
    last = max(closings, key=lambda closing: closing.at)
    return runs.closed_by(last, view_of_all(alerts))


def in_case(case: Case, clearance: int) -> str:
    """`in case ~203, made by anna`, of alerts that are all in this one; mrkdwn."""
    is_open = RedactedView(Subject.case(case), clearance).is_open
    return f"in case {case.id}{f', made by {person_name(case.created_by)}' if is_open else ''}"


def storm_sentence(storm: Storm, since: str) -> str:
    """For `doctor` and the App Home, which write times differently."""
    cards, left = count(storm.groups, "card"), storm.open or "none"
    share = f"{storm.alerts:,} alerts share {cards} since {since}, {left} still open"
    return f"{share}; critical ones come first, the others by severity"
