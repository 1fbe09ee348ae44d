"""`/responder help`: what the caller may do, with ids from this channel; and what an unknown verb probably meant."""

from collections.abc import Mapping

from bot.cards import notices
from bot.cards.text import code, foreign
from bot.features.base import Ack, Command, Context, Entry, Feature, Json
from bot.features.typed import mended, nearest
from core.models import Person

USAGE = "help"
EXAMPLE = "~12"


async def on_help_command(moment: Context) -> None:
    """Answers with the verbs."""
    await moment.say(notices.notice("\n".join(await _help(moment))))


async def on_unknown_command(moment: Context) -> Json:
    """A text that begins with no verb: the nearest one, and all there are, in the acknowledgement."""
    command, verb = moment.tools.command, mended(moment.text).partition(" ")[0].lower()
    meant = nearest(verb, _commands())
    hint = f" Did you mean {code(f'{command} {meant}', 100)}?" if meant else ""
    lines = [f"There is no verb {code(verb, 60)}.{hint}", *await _help(moment)]
    return notices.acknowledgement(notices.notice("\n".join(lines)))


async def on_mistyped_command(moment: Context) -> Json:
    """A verb without what it needs: what to type, in the acknowledgement."""
    verb, _, rest = mended(moment.text).partition(" ")
    sentence = _commands()[verb.lower()].mistake(rest, moment.tools.command)
    return notices.acknowledgement(notices.error(sentence))


async def _help(moment: Context) -> list[str]:
    example = next(iter(await moment.tools.mail.subjects(moment.channel, 1)), EXAMPLE)
    return help_lines(moment.person, moment.tools.command, example, _commands())


def _commands() -> Mapping[str, Command]:
    from bot.features import COMMANDS  # the registry holds this feature, so not at import

    return COMMANDS


def help_lines(person: Person | None, command: str, example: str, commands: Mapping[str, Command]) -> list[str]:
    """One line for each verb that this person may use, with an id that stands in this channel."""
    shown = [c for c in commands.values() if c.summary and may(person, c)]
    lines = [f"• {code(f'{command} {c.usage}'.replace('~id', example), 120)} {foreign(c.summary, 200)}" for c in shown]
    lines = [f"*What you can do with* {code(command, 40)}", *lines]
    if person is None:
        lines.append("You are not linked to a user yet; an administrator can do that: `responder-bot user link`.")
    return lines


def may(person: Person | None, command: Command) -> bool:
    """Whether this person has the right that the verb needs."""
    return command.permission is None or (person is not None and command.permission in person.permissions)


UNKNOWN = Entry(on_unknown_command, Ack.ANSWER, anyone=True)
MISTYPED = Entry(on_mistyped_command, Ack.ANSWER)

FEATURE = Feature(commands={"help": Command(Entry(on_help_command, anyone=True), USAGE, "this")})
