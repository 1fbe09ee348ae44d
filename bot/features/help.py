"""`/responder help`: what the caller may do, and what mistyped commands probably meant; and `/responder doctor`."""

import asyncio
from collections.abc import Mapping, Sequence

from bot.block_kit import ids, notices
from bot.block_kit.names import typed_names
from bot.block_kit.notices import TASKS
from bot.block_kit.subjects import SHORT_TITLE, headline
from bot.block_kit.text import code, core_says, foreign, said
from bot.clearance import tlp_name
from bot.features import subjects
from bot.features.authorization import DIRECT_MESSAGE, not_linked, who_gives_rights
from bot.features.base import Ack, Command, Context, Entry, Feature, Json
from bot.features.command_text import NOT_TAKEN, WHICH, closest_match, match_names, wrong_usage
from bot.features.responses import require_permission
from core.client import CoreClient
from core.common.errors import ResponderBotError
from core.common.words import some_of
from core.models import Check, Person

MOST_OFFERED = 3  # alerts, where a command names none
SAME_AS = {"-h": "help", "--help": "help", "status": "active"}
GROUPS = {
    "Decide": ("pending", "approve", "deny", "cancel"),
    "Act": ("start", "list", "run", "undo", "extend", "assign", "case", "template"),
    "Look": ("active", "find", "alert", "mine", "actions", "failed", "audit", "doctor", "help"),
}
WAITS = "of a run, of several that were asked for together, or of an alert; without it of what waits, or on a host"
IN_FORCE = {
    "HOST": "on a host or an address, or on those that have this in their names",
    "~id": "of an alert, a case, a run, or several that were asked for together",
}
HOW_TO: Mapping[str, Mapping[str, str]] = {
    "run": {
        "run NAME HOST": "on the open alert that has this host or address; if several have it, they are listed",
        "run NAME ~id HOST HOST": "on these hosts, addresses or other observables of an alert",
        "run NAME ~id ~id": "on each of several, after a form that lists them",
        'run NAME ~id INPUT=VALUE note="why"': "with inputs, and a note for who approves it",
    },
    "approve": {"approve ~id": f"{WAITS}; nothing starts before you press the button of its form"},
    "deny": {"deny ~id": f"{WAITS}; its form asks why, and who asked reads that"},
    **{verb: {f"{verb} {what}": of for what, of in IN_FORCE.items()} for verb in ("active", "undo", "extend")},
}


async def on_help_command(context: Context) -> None:
    """List the verbs, or how to use one of some, in a modal: a phone shows that from its first line on."""
    await context.show("Help", notices.notice("\n".join(_help(context))))


async def on_unknown_command(context: Context) -> Json:
    """Acknowledge an unknown verb with the closest one that takes the rest, or where all are listed."""
    command, known = context.services.command, context.services.commands
    verb, _, rest = context.text.partition(" ")
    takes_it = [name for name, one in known.items() if not wrong_usage(one.usage, rest, "").startswith(NOT_TAKEN)]
    text = f"Unknown command {code(verb, 60)}."
    takes_it += [one for one, same in SAME_AS.items() if same in takes_it and one.isalpha()]
    if meant := closest_match(verb.lower(), takes_it):
        text = f"Unknown command. Did you mean {code(f'{command} {meant} {rest}'.strip(), 100)}?"
    elif rest and context.linked:
        go_on = f"To run a responder, type {code(f'{command} run {verb} {rest}', 100)}"
        if verb.lower() == "close":
            go_on = "*Close* is in the ⋯ menu of an alert's card; a case is closed where it is worked on, not in Slack"
        text = f"{text} {go_on}."
    text = f"{text} {code(f'{command} help', 60)} lists all commands."
    return notices.acknowledgement(notices.notice(text))


async def on_mistyped_command(context: Context) -> Json:
    """Acknowledge a verb without what it needs with what to type."""
    verb, _, rest = context.text.partition(" ")
    command = context.services.commands[verb.lower()]
    require_permission(context, command.permission)
    text = wrong_usage(command.usage, rest, context.services.command)
    name = rest if "NAME ~id" in command.usage else ""
    worst = await _worst_open(context, name) if text.startswith(WHICH) and "~id" in command.usage else []
    return notices.acknowledgement(notices.notice("\n".join([core_says(text, 2800), *worst])))


async def _worst_open(context: Context, name: str) -> list[str]:
    """A line for each of the worst open alerts of this person and of nobody, on which a responder of this name runs."""
    own, free = await asyncio.gather(context.core.open_alerts(context.person.login), context.core.open_alerts(""))
    worst = [one.id for one in sorted([*own, *free], key=lambda one: -one.severity)[: 10 * MOST_OFFERED]]
    views = await subjects.visible_of(context, worst)
    if name:
        found = await subjects.documents(context.core, worst, responders=True)
        offered = [(one.id, responder) for one in found for responder in one.responders.get(one.id, ())]
        named = {*match_names(name, [known for _, one in offered for known in typed_names(one)])}
        able = {id_ for id_, one in offered if one.can_run and named & {*typed_names(one)}}
        views = [view for view in views if view.subject.id in able] if named else views
    first = views[:MOST_OFFERED]
    return [f"• {headline(view, limit=SHORT_TITLE)['text']['text']} · {view.subject.id}" for view in first]


def _help(context: Context) -> list[str]:
    """One line for each verb that this person may use; a line that is copied acts on nothing, as `~id` is no id."""
    person, command, typed = context.linked, context.services.command, context.text.lower()
    verb = SAME_AS.get(typed, typed)
    allowed = {name: c for name, c in context.services.commands.items() if c.summary and _may_use(person, c)}
    more = HOW_TO.get(verb, {}) if verb in allowed else {}
    groups = {"": [verb]} if more else GROUPS
    unknown = [f"There is no command {code(verb, 60)}."] if verb and verb not in context.services.commands else []
    lines = [*unknown, f"*What you can do with* {code(command, 40)}"]
    for group, verbs in groups.items():
        shown = {**{c.usage: c.summary for one in verbs if (c := allowed.get(one))}, **more}
        lines += [f"*{group}*"] if group and shown else []
        lines += [f"• {code(f'{command} {usage}', 120)} {summary}" for usage, summary in shown.items()]
    if person is None:
        lines.append(not_linked(context).text)
    elif "manageAction" not in person.permissions:
        lines.append("You may read, but not run responders. An administrator of responder-bot can change that.")
    return lines


def _may_use(person: Person | None, command: Command) -> bool:
    if person is None:
        return command.entry.is_public
    return command.permission is None or command.permission in person.permissions


_HELP = Entry(on_help_command, is_public=True, modal_title="Help")
UNKNOWN = Entry(on_unknown_command, Ack.RESPONSE, is_public=True)
MISTYPED = Entry(on_mistyped_command, Ack.RESPONSE)


# --- doctor: what may keep a button from working, and how to fix it, as far as the caller may know it ----------------


async def on_doctor_command(context: Context) -> None:
    """Show one line for each link between this person's click and a running responder.

    Those beyond the person's own tell of channels and of how core is set up, so only an org-admin reads them.
    """
    person = context.linked
    if person is None:
        away = notices.notice(f"{context.core_problem} `responder-bot doctor` on its machine shows every check.")
        await context.respond(away if context.core_problem else not_linked(context))
        return
    link = Check("you", True, f"linked, and may see up to {tlp_name(person.clearance)}")
    who = await who_gives_rights(context.services) or "an administrator"
    checks = [link, _permissions_check(person, who), _channel_check(context)]
    others = [*await core_checks(context.services.core), *await context.services.checks()]
    checks += others if person.profile == "org-admin" else [_summary(others, who)]
    head = f"*{_failing(checks) or 'All is well'}.*"
    await context.respond(notices.notice("\n".join([head, *map(line, checks)])))


def _summary(checks: Sequence[Check], who: str) -> Check:
    """How many checks fail, and who sees which."""
    failing = _failing(checks, " checks of responder-bot")
    return Check(
        "responder-bot", not failing, f"{failing}; ask {who}, who sees them here" if failing else "all is well"
    )


def _failing(checks: Sequence[Check], what: str = "") -> str:
    """`1 of 4 needs attention`; "" if all are well."""
    failed = sum(not check.ok for check in checks)
    return f"{failed} of {len(checks)}{what} {'needs' if failed == 1 else 'need'} attention" if failed else ""


def line(check: Check) -> str:
    """A check as a line of mrkdwn: mark, name, and what to do."""
    mark = "✗" if not check.ok else "⚠️" if check.is_warning else "✓"
    return f"{mark} *{foreign(check.name, 60)}*: {foreign(said(check.message), 400)}"


def _permissions_check(person: Person, who: str) -> Check:
    if "manageAction" in person.permissions:
        return Check("your rights", True, ", ".join(TASKS.get(one, one) for one in person.permissions))
    return Check("your rights", False, f"you can't run responders; ask {who}, who can let you")


def _channel_check(context: Context) -> Check:
    channel, name = context.channel, "this channel"
    if channel.startswith(DIRECT_MESSAGE):
        return Check(name, True, "a direct message, which shows what you may see")
    clearance = context.services.clearance(channel)
    if clearance is None:
        return Check(name, False, f'not set up: add [[channel]] with id = "{channel}" and a clearance')
    return Check(name, True, f"shows up to {tlp_name(clearance)}; above that, details are withheld")


async def core_checks(core: CoreClient) -> list[Check]:
    """Checks of core and its parts from its `/health`: one for each part that is well, else one for each line."""
    try:
        health = await core.health()
    except ResponderBotError as error:
        cure = "Start it, `responder-bot serve` or `responder-bot core`, or correct [bot] core_url."
        return [Check("core", False, f"{error.message} {cure}")]
    status = str(health.get("status"))
    meanings = {"ok": "well", "degraded": "works, but something is missing"}.get(status, "down")
    checks = [Check("core", status != "down", meanings)]
    for part in health.get("parts") or []:
        name, is_well, lines = str(part.get("name")), bool(part.get("ok")), str(part.get("message")).splitlines()
        checks += [Check(name, is_well, line) for line in (lines[:1] if is_well else lines) or ["well"]]
    return checks


FEATURE = Feature(
    commands={
        "doctor": Command(
            Entry(on_doctor_command, is_public=True, works_without_core=True), "doctor", "why a button may not work"
        ),
        "help": Command(_HELP, "help [verb]", f"this list, or more on one of {some_of([*HOW_TO], len(HOW_TO))}"),
    },
    actions={ids.HELP: _HELP},
)
