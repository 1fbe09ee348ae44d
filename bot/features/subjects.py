"""Look up the object of an id that somebody typed or clicked."""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import TypeVar

from bot.block_kit import notices
from bot.block_kit.names import title, titled_as
from bot.clearance import RedactedView, Subject, artifact_title, may_see, refanged, tlp_name, visible
from bot.features.authorization import own_clearance
from bot.features.base import Context
from bot.features.command_text import find_ids, split_words
from bot.outbox.links import card_link
from core.client import CoreClient
from core.common.clock import DAY_MS
from core.common.errors import Ignoring, ResponderBotError
from core.common.grouping import grouped
from core.models import (
    OBJECT_TYPES,
    Action,
    Alert,
    Approval,
    Artifact,
    Document,
    OfferedResponder,
    OpenAlert,
    Policy,
    TargetArtifact,
    is_same_target,
    parse_id,
)

NOTHING = "Nothing has the id {}: no alert, case, task, log or observable."
RAN = "{0} is a run, or a bulk of them: `/responder active {0}` shows what it has in force, `audit {0}` who decided."
LIKE_DATA = re.compile(r"[^\W_]\.[^\W_]|[@:]|^[0-9a-fA-F]{32,}$")  # such as an address, a domain, a URL or a hash
A = TypeVar("A", Alert, OpenAlert)
N = TypeVar("N", Artifact, TargetArtifact)
_LINKED = re.compile(r"^(?:h(?:tt|xx)ps?://|mailto:)")  # what Slack puts in front of a domain or a mail address


async def find(core: CoreClient, object_id: str) -> Subject:
    """Look up an id of unknown kind, also one that an observable had before it became an equal one of a case.

    Raises ResponderBotError("not_found").
    """
    return (await with_document(core, object_id))[0]


async def with_document(core: CoreClient, object_id: str, *, responders: bool = False) -> tuple[Subject, Document]:
    """Likewise, with the document of its alert or case."""
    if parse_id(object_id) is not None:
        found = await core.documents([object_id], responders=responders)
        for document in found.documents:
            subject = Subject.in_document(document, object_id) or await _merged(core, document, object_id)
            if subject is not None:
                return subject, document
        if not found.missing:
            raise ResponderBotError("not_found", RAN.format(object_id))
    raise ResponderBotError("not_found", NOTHING.format(object_id))


async def visible_of(context: Context, ids: Sequence[str]) -> list[RedactedView]:
    """Those of these alerts and cases that this person may see, in this order."""
    found = {one.id: Subject.in_document(one, one.id) for one in await documents(context.core, ids)}
    read = [RedactedView(one, own_clearance(context)) for one in map(found.get, ids) if one is not None]
    return [view for view in read if view.is_open]


async def documents(core: CoreClient, ids: Iterable[str], *, responders: bool = False) -> list[Document]:
    """Those of any number of objects and actions."""
    pages = core.documents_in_pages(ids, responders=responders)
    return [document async for page in pages for document in page.documents]


async def alert(context: Context, alert_id: str) -> Alert:
    """The alert with this id. Raises ResponderBotError("not_found"), which says what else has it."""
    return as_alert(context, *await with_document(context.core, alert_id))


def as_alert(context: Context, subject: Subject, document: Document) -> Alert:
    """The alert that a subject is. Raises ResponderBotError("not_found"), which says what else it is."""
    if document.alert is not None and subject.id == document.id:
        return document.alert
    what, command = OBJECT_TYPES[subject.kind].lower(), context.services.command
    shows = f"`{command} {'alert' if subject.kind == 'case' else 'list'} {subject.id}` shows it"
    raise ResponderBotError("not_found", f"{subject.id} is no alert, it is a {what}: {shows}.")


async def _merged(core: CoreClient, document: Document, object_id: str) -> Subject | None:
    """The observable that has another id by now; None if there is none, such as for the id of an action."""
    with Ignoring("not_found"):
        now = (await core.object_in_context("case_artifact", object_id)).object["id"]
        return Subject.in_document(document, now)
    return None


@dataclass(frozen=True)
class Targets:
    """An object with the responders for it, also those that can't run and why.

    `by_artifact` has the names of those that can run on each artifact of an alert.
    """

    subject: Subject
    offered: Sequence[OfferedResponder]
    by_artifact: Mapping[str, Sequence[str]]


async def targets(core: CoreClient, object_id: str) -> Targets:
    """Look up an object with the responders for it. Raises ResponderBotError("not_found")."""
    subject, document = await with_document(core, object_id, responders=True)
    return Targets(subject, document.responders.get(object_id, []), document.artifact_responders)


async def offered(core: CoreClient, object_id: str) -> tuple[Subject, Sequence[OfferedResponder]]:
    """Likewise, without an alert's artifacts."""
    on_object = await targets(core, object_id)
    return on_object.subject, on_object.offered


async def of_action(core: CoreClient, action: Action) -> tuple[Action, Subject]:
    """The action with its responder's title, and what it ran on: if that was deleted, something that shows nothing."""
    for document in (await core.documents([action.id])).documents:
        in_document = next((candidate for candidate in document.actions if candidate.id == action.id), None)
        return titled_as(action, in_document), Subject.of_action(action, document)
    return action, Subject.of_action(action)


async def responder(core: CoreClient, subject: Subject, name: str) -> OfferedResponder | None:
    """The responder for an object with this name; None if it is no longer there."""
    return next((one for one in await core.responders(subject.kind, subject.id) if one.name == name), None)


async def policy_and_able(core: CoreClient, subject: Subject, name: str) -> tuple[Policy, Sequence[str]]:
    """The policy of the responder with this name, or an empty one, and who may approve, if that is known."""
    found = await responder(core, subject, name)
    of_responder = found.policy if found is not None else Policy()
    return of_responder, (found.approvers if found is not None else None) or of_responder.approve_by or ()


async def deciders(core: CoreClient, *run_ids: str) -> tuple[Mapping[str, Sequence[str]], bool]:
    """By run that waits, of these: who may decide on it, logins; and whether it is these who are asked."""
    found = await documents(core, run_ids)
    able = {id_: [one.login for one in of] for document in found for id_, of in document.may_decide.items()}
    of_runs = [(document.policies, run) for document in found for run in document.actions if run.id in run_ids]
    others = [policies.get(run.responder_name, Policy()).ask for policies, run in of_runs]
    return {id_: able[id_] for id_ in run_ids if id_ in able}, not any(others)


async def visible_run(context: Context, action_id: str) -> tuple[Action, RedactedView]:
    """The run with its responder's title, and what it is on. Raises ResponderBotError: not_found, forbidden."""
    action, subject = await of_action(context.core, await context.core.action(action_id))
    return action, require_visible(context, subject)


def split_targets(
    text: str, artifacts: Iterable[N], is_name: Callable[[str, int], bool] = lambda _, number: False
) -> tuple[str, list[Sequence[N]]]:
    """What else is in a command's text, and the artifacts whose data (defanged or not) or id it has, by each of it.

    The data may have blanks, and commas between. None is looked for once the rest is a name, also by how many it had.
    """
    known: dict[str, list[N]] = {}
    for artifact in artifacts:
        texts: list[str] = [artifact.data] if isinstance(artifact, TargetArtifact) else artifact.texts
        for data in {artifact.id, *map(plain_data, texts)}:
            known.setdefault(data, []).append(artifact)
    parts = ([word] if plain_data(word) in known else word.split(",") for word in split_words(text))
    words, named = [part for each in parts for part in each if part], list[Sequence[N]]()
    longest = max((data.count(" ") + 1 for data in known), default=0)
    while not is_name(" ".join(words), len(named)):
        for length, end in product(range(min(longest, len(words)), 0, -1), range(len(words), 0, -1)):
            typed = " ".join(words[max(end - length, 0) : end])
            if found := [one for one in known.get(plain_data(typed), ()) if is_named(one, typed)]:
                words[end - length : end] = []
                named.insert(0, found)
                break
        else:
            break
    return " ".join(words), named


def is_named(artifact: Artifact | TargetArtifact, typed: str) -> bool:
    """Whether what somebody typed, or Slack made a link of, is this artifact and not just alike; a file by its name."""
    plain = refanged(visible(typed)).strip()
    texts = {typed, plain, _LINKED.sub("", plain).rstrip("/")}
    is_file = artifact.kind == "file" if isinstance(artifact, TargetArtifact) else artifact.data is None
    same = (is_same_target(artifact.data_type, artifact.data or "", text) for text in texts)
    return is_file or artifact.id in texts or any(same)


def plain_data(data: str) -> str:
    """Data as people type it or as Slack makes a link of it: not defanged, in one case, without scheme."""
    return _LINKED.sub("", " ".join(refanged(visible(data)).casefold().split())).rstrip("/")


def no_target(text: str, view: RedactedView, command: str, responder: str) -> ResponderBotError | None:
    """Why nothing was run, if the text seems to have an observable that isn't there for this person; else None.

    `responder` is what to type for the one that the text names; "" if it names none, or nothing else.
    """
    words = split_words(text)[::-1]
    word = next((word for word in words if parse_id(word) is not None or LIKE_DATA.search(refanged(word))), "")
    if not word or view.subject.kind != "alert":
        return None
    alert_id = view.subject.id
    sentence = f"{alert_id} shows you no observable {word[:100]!r}. `{command} list {alert_id}` shows what it has."
    if find_ids(word) == [word]:
        name = " ".join(one for one in words[::-1] if one != word)
        alone = f"For {alert_id} alone type `{command} run {responder or name[:100]} {alert_id}`."
        sentence = f"Nothing that you may see has the id {word}. {alone}"
    return ResponderBotError("not_found", f"{sentence} Nothing was run.", details={"unknown": word})


def takers(responder: OfferedResponder, on_object: Targets, view: RedactedView) -> Sequence[Artifact]:
    """The artifacts of an alert that a responder can run on, as far as they may be shown."""
    return [artifact for artifact in view.artifacts() if responder.name in on_object.by_artifact.get(artifact.id, ())]


def runs_elsewhere(
    responder: OfferedResponder, artifacts: Sequence[Artifact], view: RedactedView, command: str
) -> ResponderBotError:
    """Says that a responder can run on observables, but not on their alert; `command` runs it on one, by its id."""
    each = ", ".join(
        f"{view.text(artifact_title(artifact))[:100]} (`{command} {artifact.id}`)" for artifact in artifacts[:5]
    )
    sentence = f"{title(responder)} can't run on {view.subject.id} itself, but on {each}. Nothing was run."
    return ResponderBotError("bad_request", sentence)


def require_visible(context: Context, subject: Subject) -> RedactedView:
    """Refuse early what core would refuse: acting on what this person may not see. Raises ResponderBotError."""
    view = RedactedView(subject, own_clearance(context))
    if not may_see(view.clearance, subject.clearance):
        details = {"tlp": subject.clearance, "clearance": view.clearance}
        raise ResponderBotError("forbidden", notices.withheld_from(view.clearance), details=details)
    return view


def require_vote(context: Context, action: Action, approval: Approval | None) -> None:
    """Refuse early what core would refuse: an approval by somebody who may not see the target, or a second one.

    `approval` is that of the run, or of its extension. Raises ResponderBotError.
    """
    clearance, login = context.person.clearance, context.person.login
    if hidden := [artifact.tlp for artifact in action.target or () if not may_see(clearance, artifact.tlp)]:
        sentence = f"It acts on something that is {tlp_name(max(hidden))}, which you may not see; ask somebody who may."
        raise ResponderBotError("forbidden", sentence)
    if approval is not None and login in approval.approved_by:
        raise ResponderBotError("conflict", "You have approved it; it needs somebody else's approval as well.")


MAX_WORDS = 10


async def search(core: CoreClient, text: str, clearance: int, most: int) -> Sequence[Alert]:
    """The alerts that show all words of a text, or an id, to this clearance; all without one.

    The alerts of the newest day (UTC) come first, of each day the most severe and newest, and at most `most` of them.
    What is withheld is not searched: that something was found would tell of it. Alerts may be long and have many hidden
    observables to mask, so a thread looks through them.
    """
    words = [refanged(word).casefold() for word in split_words(text)][:MAX_WORDS]
    ids = find_ids(text) or [f"~{word}" for word in words if word.isdigit() and len(words) == 1]
    query = {"_in": {"_field": "_id", "_values": ids}}
    by_id = await core.search(Alert, "/api/alert/_search", query) if ids else []
    found = await core.find_alerts(" ".join(words))
    newest = sorted(found, key=lambda one: (one.created_at // DAY_MS, one.severity, one.number), reverse=True)
    return await asyncio.to_thread(lambda: list(islice(showing([*by_id, *newest], ids, words, clearance), most)))


def showing(alerts: Iterable[Alert], ids: Sequence[str], words: Sequence[str], clearance: int) -> Iterator[Alert]:
    """Those that have one of the ids, or show all words to this clearance, each once. Pure."""
    seen = set[str]()
    for alert in alerts:
        view = RedactedView(Subject.alert(alert), clearance)
        if alert.id not in seen and view.is_open and (alert.id in ids or _shows(alert, view, words)):
            seen.add(alert.id)
            yield alert


def _shows(alert: Alert, view: RedactedView, words: Sequence[str]) -> bool:
    own = [alert.title, alert.description, alert.type, alert.source, alert.source_ref, *view.tags(alert)]
    texts = view.searchable([*own, *(text for field in view.fields(alert).items() for text in map(str, field))])
    return all(word in texts for word in words)


async def by_group(context: Context, alerts: Sequence[A]) -> dict[str, list[A]]:
    """The alerts by the key of their group, or their own id where they are in none."""
    groups = await context.services.outbox.alert_groups.groups_of([alert.id for alert in alerts])
    return grouped((groups.get(alert.id, alert.id), alert) for alert in alerts)


async def card_links(context: Context, root_ids: Sequence[str]) -> Mapping[str, str]:
    """By alert or case the address of a card; "" if none is posted."""
    services = context.services
    cards = await services.outbox.cards_of(root_ids)
    return {root_id: card_link(cards[root_id], services.clearance, services.workspace_url()) for root_id in root_ids}
