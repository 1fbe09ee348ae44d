"""How features answer: with buttons of their own, in place of what was clicked, and to old buttons."""

from collections.abc import Callable, Mapping
from typing import Any

from bot.cards import ids, questions
from bot.cards.message import ButtonIds, Intent, Message, intents_in
from bot.features.base import Context
from bot.redaction import Subject
from core.common.errors import ResponderBotError


async def answer(moment: Context, message: Message) -> None:
    """Only to this person: in place of the ephemeral that was clicked, else as a new one."""
    if on_ephemeral(moment):
        await moment.replace(message)
    else:
        await moment.say(message)


async def answer_with_buttons(moment: Context, about: str, render: Callable[[ButtonIds], Message]) -> None:
    """The same, for a message with buttons; `about` tells apart what this person was shown here."""
    button = await buttons(moment, about, render)
    await answer(moment, render(button))


async def buttons(moment: Context, about: str, render: Callable[[ButtonIds], object]) -> ButtonIds:
    """Opaque ids for what `render` shows to this person alone."""
    key = f"only:{moment.team}:{moment.user}:{about}"
    return await moment.tools.mail.buttons.issue(moment.channel, key, intents_in(render))


def clicked(moment: Context) -> Mapping[str, Any]:
    """The element that was clicked; empty when the payload holds none."""
    actions = moment.payload.get("actions")
    first = actions[0] if isinstance(actions, list) and actions else None
    return first if isinstance(first, Mapping) else {}


def chosen(moment: Context) -> str:
    """The value of the option that was chosen."""
    option = clicked(moment).get("selected_option")
    return str(option.get("value") or "") if isinstance(option, Mapping) else ""


def on_ephemeral(moment: Context) -> bool:
    container = moment.payload.get("container")
    return isinstance(container, Mapping) and container.get("is_ephemeral") is True


async def repaint(moment: Context, subject: Subject) -> None:
    """Paint what stands in channels of it now: a person did something."""
    log_id = subject.id if subject.kind == "case_task_log" else ""
    await moment.tools.repaint(subject.root_id or subject.id, log_id)


async def intent_of(moment: Context) -> Intent | None:
    """What was clicked means; None when the button no longer counts, which the person is then told."""
    return await meaning(moment, token_of(moment))


def token_of(moment: Context) -> str:
    """The opaque id of what was clicked: a menu of responders has it in its block's id, the others as their value."""
    element = clicked(moment)
    block_id = str(element.get("block_id") or "")
    if block_id.startswith(ids.MENU_BLOCK) and ids.family(str(element.get("action_id"))) == ids.MENU:
        return block_id.removeprefix(ids.MENU_BLOCK)
    return chosen(moment) or str(element.get("value") or "")


async def meaning(moment: Context, token: str) -> Intent | None:
    """The same for a given id."""
    try:
        return await moment.tools.mail.buttons.resolve(
            token, channel=moment.channel, message_ts=moment.message_ts, user=moment.user
        )
    except ResponderBotError as error:
        if error.code not in ("gone", "not_found", "forbidden"):
            raise
        subject_id = str(error.details.get("subject") or "") or _subject_here(moment)
        await answer_with_buttons(moment, f"stale:{subject_id}", lambda b: questions.expired_button(subject_id, b))
        return None


def _subject_here(moment: Context) -> str:
    """What the message that was clicked is about, if it is ours; else "", which stands for the whole channel."""
    places = [ts for ts in (moment.message_ts, moment.thread_ts) if ts]
    shown = [moment.tools.mail.message_at(moment.channel, ts) for ts in places]
    return next((one.subject for one in shown if one is not None and one.subject), "")


def need(moment: Context, permission: str, what: str) -> None:
    """Says early what core would refuse in any case. Raises "forbidden"; core checks again."""
    if moment.person is None or permission not in moment.person.permissions:
        raise ResponderBotError(
            "forbidden",
            f"You may not {what}: you haven't the permission {permission}. An org-admin of responder-bot can give it.",
        )
