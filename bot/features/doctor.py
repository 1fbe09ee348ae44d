"""`/responder doctor`: everything that may keep a button from working, and how to fix it."""

from collections.abc import Mapping, Sequence
from typing import Any

from bot.cards import notices
from bot.cards.text import foreign
from bot.features.access import DIRECT_MESSAGE
from bot.features.base import Check, Command, Context, Entry, Feature
from core.common.errors import ResponderBotError
from core.models import TLP_NAMES

USAGE = "doctor"


async def on_doctor_command(context: Context) -> None:
    """Show one line for each link between this person's click and a running responder."""
    me = [] if context.core_problem else [_link_check(context), _permissions_check(context)]
    own = [*me, _channel_check(context)]
    checks = [*own, *await _core(context), *await context.services.checks()]
    failed = sum(not check.ok for check in checks)
    head = "*All is well.*" if not failed else f"*{failed} of {len(checks)} need attention.*"
    await context.respond(notices.notice("\n".join([head, *map(line, checks)])))


def line(check: Check) -> str:
    """A check as a line of mrkdwn: mark, name, and what to do."""
    mark = "✓" if check.ok else "✗"
    return f"{mark} *{foreign(check.name, 60)}*: {foreign(check.message, 400)}"


def _link_check(context: Context) -> Check:
    if context.person is None:
        cure = f"responder-bot user link YOUR-LOGIN --slack-id {context.team}:{context.user}"
        sentence = (
            f"not linked to a user of responder-bot; request access in my Home tab, or an administrator runs: {cure}"
        )
        return Check("you", False, sentence)
    login, clearance = context.person.login, context.person.clearance
    return Check("you", True, f"linked to {login}, who may see up to {_tlp(clearance)}")


def _permissions_check(context: Context) -> Check:
    permissions: Sequence[str] = context.person.permissions if context.person else ()
    if "manageAction" in permissions:
        return Check("your rights", True, f"{', '.join(permissions)}")
    return Check("your rights", False, "no manageAction: buttons that run something refuse you; an org-admin gives it")


def _channel_check(context: Context) -> Check:
    channel, name = context.channel, "this channel"
    if channel.startswith(DIRECT_MESSAGE):
        return Check(name, True, "a direct message, which shows what you may see")
    clearance = context.services.clearance(channel)
    if clearance is None:
        return Check(name, False, f'not set up: add [[channel]] with id = "{channel}" and a clearance')
    return Check(name, True, f"shows up to {_tlp(clearance)}; above that, details are withheld")


def _tlp(clearance: int) -> str:
    return f"TLP:{TLP_NAMES[clearance].upper()}"


async def _core(context: Context) -> list[Check]:
    try:
        health = await context.services.core.health()
    except ResponderBotError as error:
        return [Check("core", False, f"{error.message} Is `responder-bot core` running, at [bot] core_url?")]
    return core_checks(health)


def core_checks(health: Mapping[str, Any]) -> list[Check]:
    """Checks of core and its parts from its `/health`: one for each part that is well, else one for each line."""
    status = str(health.get("status"))
    words = {"ok": "well", "degraded": "works, but something is missing"}.get(status, "down")
    checks = [Check("core", status != "down", words)]
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
