"""Running a responder: by command, from a menu, by a button; asking first, and two analysts who click at once."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.cards import ids, notices, questions, runs
from bot.cards.lists import can_run, reasons, responder_of_option
from bot.cards.message import Message
from bot.cards.text import foreign, when
from bot.features import answers, subjects
from bot.features.base import Ack, Command, Context, Entry, Feature
from bot.features.gate import own_clearance
from bot.features.typed import by_name, nearest, split_name_and_id
from bot.redaction import Subject, kind_of
from core.client import UNANSWERED
from core.common.errors import ResponderBotError
from core.models import KINDS, Action, Kind, OfferedResponder, RunInput

USAGE = "run NAME ~id"
TRIES_S = (0.0, 0.2, 0.5, 1.0, 2.0, 4.0)  # a core that is started again is up within a few seconds
UNANSWERED_S = 9.0  # a core that hangs is waited for once


@dataclass(frozen=True)
class RunRequest:
    """What somebody wants to run. `confirmed`: they were asked; `anyway`: though the same is still open."""

    subject: Subject
    responder: OfferedResponder
    parameters: Mapping[str, Any] = field(default_factory=dict)
    confirmed: bool = False
    anyway: bool = False


async def on_run_command(moment: Context) -> None:
    """Runs it, or asks first where its policy says so."""
    name, object_id = subjects.id_in(moment, USAGE)
    subject = await subjects.find(moment.core, object_id)
    offered = await moment.core.responders(subject.kind, subject.id, explain=True)
    found = named(name, offered)
    if len(found) > 1:
        await moment.say(questions.ambiguous_name(name, found, subject, moment.tools.command))
        return
    if not found:
        raise _no_such(name, offered, subject, moment.tools.command)
    await start(moment, RunRequest(subject, found[0]))


def _mistake(rest: str, command: str) -> str:
    name, object_id = split_name_and_id(rest)
    if object_id is None or name:
        return subjects.no_id(USAGE)(rest, command)
    return f"Run what? `{command} list {object_id}` shows what can run on {object_id}."


def named(name: str, offered: Sequence[OfferedResponder]) -> list[OfferedResponder]:
    """Those that a typed name may stand for; its id does as well."""
    exact = [r for r in offered if name in (r.id, r.name)]
    if exact:
        return exact[:1]
    names = set(by_name(name, [r.name for r in offered]))
    return [r for r in offered if r.name in names]


def _no_such(name: str, offered: Sequence[OfferedResponder], subject: Subject, command: str) -> ResponderBotError:
    meant = nearest(name, [r.name for r in offered])
    hint = f"Did you mean {meant}?" if meant else f"{command} list {subject.id} shows what there is."
    return ResponderBotError("not_found", f"There is no responder {name[:100]!r}. {hint}")


async def on_responder_menu(moment: Context) -> None:
    """An entry was chosen on a card: runs it, asks first, or says why it can't."""
    intent = await answers.intent_of(moment)
    if intent is None:
        return
    await moment.tools.mail.buttons.rotate(answers.token_of(moment))
    subject = await subjects.of_kind(moment.core, _kind(intent.argument), intent.object_id)
    ran = False
    try:
        ran = await _start_chosen(moment, subject)
    finally:
        if not ran and not answers.on_ephemeral(moment):
            await answers.repaint(moment, subject)  # or the menu would go on showing what was chosen


async def _start_chosen(moment: Context, subject: Subject) -> bool:
    offered = await moment.core.responders(subject.kind, subject.id, explain=True)
    responder = responder_of_option(offered, answers.chosen(moment))
    if responder is None:
        raise ResponderBotError("not_found", "That responder is no longer on offer; open the menu again.")
    return await start(moment, RunRequest(subject, responder))


async def on_run_button(moment: Context) -> None:
    """Run, or Run anyway: the person was asked, and said yes."""
    intent = await answers.intent_of(moment)
    if intent is None:
        return
    kind, _, responder_id = intent.argument.partition(" ")
    subject = await subjects.of_kind(moment.core, _kind(kind), intent.object_id)
    responder = await _offered(moment, subject, responder_id)
    await start(moment, RunRequest(subject, responder, confirmed=True, anyway=intent.what == "run_anyway"))


async def on_run_again_button(moment: Context) -> None:
    """The same responder on the same object once more; asked first if its policy says so."""
    intent = await answers.intent_of(moment)
    if intent is None:
        return
    before = await moment.core.action(intent.object_id)
    subject = await subjects.of_kind(moment.core, kind_of(before.object_type), before.object_id)
    responder = await _offered(moment, subject, before.responder_id)
    # A button that carried Slack's own question was answered with yes, or there would be no click.
    await start(moment, RunRequest(subject, responder, confirmed=intent.argument == "confirmed"))


async def on_dismiss_button(moment: Context) -> None:
    """The question goes away, nothing runs."""
    await moment.replace(None)


async def _offered(moment: Context, subject: Subject, responder_id: str) -> OfferedResponder:
    offered = await moment.core.responders(subject.kind, subject.id, explain=True)
    found = next((r for r in offered if responder_id in (r.id, r.name)), None)
    if found is None:
        raise ResponderBotError("not_found", f"{responder_id} is no longer on offer for {subject.id}.")
    return found


def _kind(text: str) -> Kind:
    return next((kind for kind in KINDS if kind == text), "alert")


# --- the way of a wish ----------------------------------------------------------------------------------------------


async def start(moment: Context, wish: RunRequest) -> bool:
    """Runs it and says so; or (False) says why not, asks first, or tells of the run that is open already."""
    responder, subject = wish.responder, wish.subject
    if not can_run(responder):
        await answers.answer(moment, questions.cannot_run(responder, subject, reasons(responder)))
        return False
    if asks_first(wish):
        clearance = own_clearance(moment)
        await answers.answer_with_buttons(
            moment,
            f"confirm:{subject.id}:{responder.id}",
            lambda button: questions.confirm(responder, subject, clearance=clearance, button=button),
        )
        return False
    try:
        action = await run(moment, wish)
    except ResponderBotError as error:
        running = open_action(error)
        if running is None:
            raise
        await answers.answer_with_buttons(
            moment,
            f"collision:{subject.id}:{responder.id}",
            lambda button: questions.collision(running, responder, subject, button=button),
        )
        return False
    await answers.repaint(moment, subject)
    await _tell(moment, action, subject)
    return True


def asks_first(wish: RunRequest) -> bool:
    """Whether its policy wants a yes before (`slack.md 2`: core enforces approval, to confirm is the client's duty)."""
    policy = wish.responder.policy
    return policy is not None and bool(policy.confirm) and not wish.confirmed


async def run(moment: Context, wish: RunRequest) -> Action:
    """Core starts it, once for one moment however often Slack delivers it. Raises ResponderBotError.

    Where core's answer is lost, as when core is killed, it is asked again under the same key, which starts nothing
    twice; only then is it certain what to tell.
    """
    body = RunInput(
        responder_id=wish.responder.id,
        object_type=wish.subject.kind,
        object_id=wish.subject.id,
        parameters=dict(wish.parameters),
        only_if_idle=not wish.anyway,
    )
    # Another body under the same key would be refused, and a modal keeps its view id when it asks again.
    key = f"{moment.key}-anyway" if wish.anyway else moment.key
    loop = asyncio.get_running_loop()
    given_up_at = loop.time() + UNANSWERED_S
    for wait_s in TRIES_S:
        if loop.time() + wait_s >= given_up_at:
            break
        await asyncio.sleep(wait_s)
        try:
            return await moment.core.run(body, idempotency_key=key)
        except ResponderBotError as error:
            if UNANSWERED not in error.details:
                raise
    name, object_id = wish.responder.name[:100], wish.subject.id
    raise ResponderBotError(
        "unavailable",
        f"{name} may have started on {object_id}: core stopped answering while it was asked to. Before you ask again, "
        f"see what ran with {moment.tools.command} actions {object_id}.",
    )


def open_action(error: ResponderBotError) -> Action | None:
    """The run that stands in the way of another (`onlyIfIdle`, `semantics.md 5`)."""
    found = error.details.get("action")
    if error.code != "conflict" or found is None:
        return None
    return found if isinstance(found, Action) else Action.model_validate(found)


async def _tell(moment: Context, action: Action, subject: Subject) -> None:
    """On a card its own line tells; elsewhere a sentence does."""
    if answers.on_ephemeral(moment) or not answers.clicked(moment):
        await answers.answer(moment, started(action, subject))
    elif runs.awaits_approval(action):
        await moment.say(started(action, subject))


def started(action: Action, subject: Subject) -> Message:
    """That it runs now, or what it waits for."""
    name = foreign(action.responder_name, runs.NAME)
    approval = action.approval
    if approval is not None and runs.awaits_approval(action):
        left = approval.needed - len(approval.approved_by)
        return notices.notice(
            f"{name} on {subject.id} waits for {left} other {'person' if left == 1 else 'people'} to agree, until "
            f"{when(approval.expires_at, '{date_short_pretty} {time}')} ({action.id})."
        )
    if not runs.is_open(action):
        return notices.notice(f"{name} {runs.state(action)} on {subject.id} ({action.id}).")
    return notices.notice(f"Started {name} on {subject.id} ({action.id}). Its card and thread tell how it goes.")


FEATURE = Feature(
    commands={
        "run": Command(
            Entry(on_run_command, Ack.WRITE),
            USAGE,
            "run a responder; the beginning of its name will do",
            "manageAction",
            mistake=_mistake,
        )
    },
    actions={
        ids.MENU: Entry(on_responder_menu, Ack.WRITE),
        ids.RUN: Entry(on_run_button, Ack.WRITE),
        ids.RUN_ANYWAY: Entry(on_run_button, Ack.WRITE),
        ids.RUN_AGAIN: Entry(on_run_again_button, Ack.WRITE),
        ids.DISMISS: Entry(on_dismiss_button),
    },
)
