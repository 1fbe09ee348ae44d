"""`/responder doctor`: what may keep a button from working, and how to fix it, as far as the caller may know it."""

from collections.abc import Sequence

from bot.block_kit import notices
from bot.block_kit.notices import TASKS
from bot.block_kit.text import foreign, said
from bot.clearance import tlp_name
from bot.features.authorization import DIRECT_MESSAGE, who_gives_rights
from bot.features.base import Check, Command, Context, Entry, Feature
from core.client import CoreClient
from core.common.errors import ResponderBotError
from core.models import Person

USAGE = "doctor"


async def on_doctor_command(context: Context) -> None:
    """Show one line for each link between this person's click and a running responder.

    Those beyond the person's own tell of channels and of how core is set up, so only an org-admin reads them.
    """
    person = context.linked
    if person is None:
        away = notices.notice(f"{context.core_problem} `responder-bot doctor` on its machine shows every check.")
        await context.respond(away if context.core_problem else notices.unlinked(context.user, context.team))
        return
    link = Check("you", True, f"linked to {person.login}, who may see up to {tlp_name(person.clearance)}")
    checks = [link, _permissions_check(person), _channel_check(context)]
    others = [*await core_checks(context.services.core), *await context.services.checks()]
    checks += others if person.profile == "org-admin" else [await _summary(context, others)]
    failed = sum(not check.ok for check in checks)
    head = "*All is well.*" if not failed else f"*{failed} of {len(checks)} need attention.*"
    await context.respond(notices.notice("\n".join([head, *map(line, checks)])))


async def _summary(context: Context, checks: Sequence[Check]) -> Check:
    """How many checks fail, and who sees which."""
    failed = sum(not check.ok for check in checks)
    if not failed:
        return Check("responder-bot", True, "all is well")
    who = await who_gives_rights(context.services) or "an administrator"
    message = f"{failed} of {len(checks)} checks of responder-bot need attention; ask {who}, who sees them here"
    return Check("responder-bot", False, message)


def line(check: Check) -> str:
    """A check as a line of mrkdwn: mark, name, and what to do."""
    mark = "✓" if check.ok else "✗"
    return f"{mark} *{foreign(check.name, 60)}*: {foreign(said(check.message), 400)}"


def _permissions_check(person: Person) -> Check:
    if "manageAction" in person.permissions:
        return Check("your rights", True, ", ".join(TASKS.get(one, one) for one in person.permissions))
    return Check(
        "your rights", False, "you can't run responders: their buttons refuse you, and an administrator can let you"
    )


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
            Entry(on_doctor_command, is_public=True, works_without_core=True),
            USAGE,
            "why a button may not work, and how to fix it",
        )
    }
)
