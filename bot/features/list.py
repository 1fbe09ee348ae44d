"""`/responder list ~id`: what can run on an object, and why the rest can't."""

from bot.cards.lists import responder_list
from bot.features import answers, subjects
from bot.features.base import Command, Context, Entry, Feature
from bot.features.gate import own_clearance
from bot.features.typed import by_name

USAGE = "list ~id"


async def on_list_command(moment: Context) -> None:
    """Answers with the list; a name beside the id narrows it."""
    name, object_id = subjects.id_in(moment, USAGE)
    subject = await subjects.find(moment.core, object_id)
    offered = await moment.core.responders(subject.kind, subject.id, explain=True)
    if name:
        names = set(by_name(name, [r.name for r in offered]))
        offered = [r for r in offered if r.name in names]
    clearance, command = own_clearance(moment), moment.tools.command
    await answers.answer_with_buttons(
        moment,
        f"list:{subject.id}",
        lambda button: responder_list(offered, subject, clearance=clearance, button=button, command=command),
    )


FEATURE = Feature(
    commands={
        "list": Command(
            Entry(on_list_command), USAGE, "what can run on it, and why the rest can't", mistake=subjects.no_id(USAGE)
        )
    }
)
