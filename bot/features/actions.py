"""`/responder actions ~id`: what ran on an object."""

from bot.cards.lists import action_list
from bot.features import answers, subjects
from bot.features.base import Command, Context, Entry, Feature
from bot.features.gate import own_clearance
from bot.redaction import Subject

USAGE = "actions ~id"


async def on_actions_command(moment: Context) -> None:
    """Answers with the runs, newest first."""
    _, object_id = subjects.id_in(moment, USAGE)
    await show(moment, await subjects.find(moment.core, object_id))


async def show(moment: Context, subject: Subject) -> None:
    """The runs on this object, to this person."""
    actions = await moment.core.actions(subject.kind, subject.id)
    now = moment.tools.clock_ms()
    await answers.answer(moment, action_list(actions, subject, clearance=own_clearance(moment), now_ms=now))


FEATURE = Feature(
    commands={
        "actions": Command(
            Entry(on_actions_command), USAGE, "what ran on it, and how it went", mistake=subjects.no_id(USAGE)
        )
    }
)
