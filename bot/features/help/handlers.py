"""`/responder help`: what the caller may do; and what mistyped commands probably meant."""

from bot.block_kit import ids, notices
from bot.block_kit.text import code, foreign
from bot.features.base import Ack, Command, Context, Entry, Feature, Json
from bot.features.command_text import closest_match, find_ids, normalize
from core.models import Person

USAGE = "help"


async def on_help_command(context: Context) -> None:
    """List the verbs."""
    await context.respond(notices.notice("\n".join(await _help(context))))


async def on_help_button(context: Context) -> None:
    """List the verbs in a modal."""
    await context.show("Help", notices.notice("\n".join(await _help(context))))


async def on_unknown_command(context: Context) -> Json:
    """Acknowledge an unknown verb with the closest one and the list of all."""
    command = context.services.command
    verb, _, rest = normalize(context.text).partition(" ")
    meant = closest_match(verb.lower(), context.services.commands)
    suggestion = f"Did you mean {code(f'{command} {meant} {rest}'.strip(), 100)}?" if meant else ""
    lines = [f"Unknown command. {suggestion}" if meant else f"Unknown command {code(verb, 60)}."]
    if rest and not meant and context.linked:
        run = code(f"{command} run {verb} {rest if find_ids(rest) else '~id'}", 100)
        find = "" if find_ids(rest) else f"; {code(f'{command} find {rest}', 100)} finds the id"
        lines = [f"{lines[0]} To run a responder, type {run}{find}. {code(f'{command} help', 60)} lists all commands."]
    else:
        lines += await _help(context)
    return notices.acknowledgement(notices.notice("\n".join(lines)))


async def on_mistyped_command(context: Context) -> Json:
    """Acknowledge a verb without what it needs with what to type."""
    verb, _, rest = normalize(context.text).partition(" ")
    command = context.services.commands[verb.lower()]
    return notices.acknowledgement(notices.error(command.usage_error(command.usage, rest, context.services.command)))


async def _help(context: Context) -> list[str]:
    """One line for each verb that this person may use; a line that is copied acts on nothing, as `~id` is no id."""
    person, command = context.linked, context.services.command
    allowed = [c for c in context.services.commands.values() if c.summary and _may_use(person, c)]
    lines = [f"• {code(f'{command} {c.usage}', 120)} {foreign(c.summary, 200)}" for c in allowed]
    lines = [f"*What you can do with* {code(command, 40)}", *lines]
    if person is None:
        lines.append(notices.unlinked(context.user, context.team).text)
    elif "manageAction" not in person.permissions:
        lines.append("You may read, but not run responders. An administrator of responder-bot can change that.")
    return lines


def _may_use(person: Person | None, command: Command) -> bool:
    if person is None:
        return command.entry.is_public
    return command.permission is None or command.permission in person.permissions


UNKNOWN = Entry(on_unknown_command, Ack.RESPONSE, is_public=True)
MISTYPED = Entry(on_mistyped_command, Ack.RESPONSE)

FEATURE = Feature(
    commands={"help": Command(Entry(on_help_command, is_public=True), USAGE, "this list")},
    actions={ids.HELP: Entry(on_help_button, modal_title="Help")},
)
