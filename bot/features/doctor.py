"""`/responder doctor`: every cause of a dead button, with the cure."""

from collections.abc import Mapping, Sequence
from typing import Any

from bot.cards import notices
from bot.cards.text import foreign
from bot.features.base import Check, Command, Context, Entry, Feature
from bot.features.gate import DIRECT
from core.common.errors import ResponderBotError
from core.models import TLP_NAMES

USAGE = "doctor"


async def on_doctor_command(moment: Context) -> None:
    """Answers with one line for each link between this person's click and a running responder."""
    checks = [_link(moment), _rights(moment), _channel(moment), *await _core(moment), *await moment.tools.checks()]
    bad = sum(not check.ok for check in checks)
    head = "*All is well.*" if not bad else f"*{bad} of {len(checks)} need attention.*"
    await moment.say(notices.notice("\n".join([head, *map(line, checks)])))


def line(check: Check) -> str:
    """A check as a line: mark, name, and what to do."""
    mark = "✓" if check.ok else "✗"
    return f"{mark} *{foreign(check.name, 60)}*: {foreign(check.message, 400)}"


def _link(moment: Context) -> Check:
    if moment.person is None:
        cure = f"responder-bot user link YOUR-LOGIN --slack-id {moment.team}:{moment.user}"
        return Check("you", False, f"not linked to a user of responder-bot; an administrator runs: {cure}")
    return Check("you", True, f"linked to {moment.person.login}, who may see up to {_level(moment.person.clearance)}")


def _rights(moment: Context) -> Check:
    permissions: Sequence[str] = moment.person.permissions if moment.person else ()
    if "manageAction" in permissions:
        return Check("your rights", True, f"{', '.join(permissions)}")
    return Check("your rights", False, "no manageAction: buttons that run something refuse you; an org-admin gives it")


def _channel(moment: Context) -> Check:
    if moment.channel.startswith(DIRECT):
        return Check("this channel", True, "a direct message, which shows what you may see")
    clearance = moment.tools.clearance(moment.channel)
    if clearance is None:
        return Check("this channel", False, f'not set up: add [[channel]] with id = "{moment.channel}" and a clearance')
    return Check("this channel", True, f"shows up to {_level(clearance)}; above that, details are withheld")


def _level(clearance: int) -> str:
    return f"TLP:{TLP_NAMES[clearance].upper()}"


async def _core(moment: Context) -> list[Check]:
    try:
        health = await moment.tools.core.health()
    except ResponderBotError as error:
        return [Check("core", False, f"{error.message} Is `responder-bot core` running, at [bot] core_url?")]
    return core_checks(health)


def core_checks(health: Mapping[str, Any]) -> list[Check]:
    """Core and its parts, as `/health` tells: the first line of a part that is well, each line of another."""
    status = str(health.get("status"))
    words = {"ok": "well", "degraded": "works, but something is missing"}.get(status, "down")
    checks = [Check("core", status != "down", words)]
    for part in health.get("parts") or []:
        name, is_well, lines = str(part.get("name")), bool(part.get("ok")), str(part.get("message")).splitlines()
        checks += [Check(name, is_well, line) for line in (lines[:1] if is_well else lines) or ["well"]]
    return checks


FEATURE = Feature(
    commands={"doctor": Command(Entry(on_doctor_command, anyone=True), USAGE, "why a button may be dead, and the cure")}
)
