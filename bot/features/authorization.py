"""Who may use the bot: people who are linked, in channels that are in the settings."""

from typing import Any

from bot.block_kit import notices
from bot.clearance import may_see
from bot.features.base import Context, Entry, Services
from bot.message import Message
from core.common.errors import ResponderBotError
from core.models import Permission

DIRECT_MESSAGE = "D"  # first letter of the ids of direct messages


def refusal(entry: Entry, context: Context) -> Message | None:
    """Why this person can't do this here, as a response to them; None if they may go on.

    Permissions are not checked here but by core.
    """
    if entry.is_public:
        return None
    if context.linked is None:
        return not_linked(context)
    if context.channel and channel_clearance(context) is None:
        return notices.not_set_up(context.channel)
    return None


def not_linked(context: Context) -> Message:
    """For somebody who isn't linked to a user of core, and may only be told how they could be."""
    return notices.unlinked(context.user, context.team, context.ended)


def channel_clearance(context: Context) -> int | None:
    """The highest TLP that the channel may show; a direct message has its person's. None: not in the settings."""
    if context.channel.startswith(DIRECT_MESSAGE):
        return context.person.clearance
    return context.services.clearance(context.channel)


async def who_else_may_see(context: Context, tlp: int) -> str:
    """Who can open an object with this TLP; "" if this person can, or nobody."""
    return "" if may_see(own_clearance(context), tlp) else await _either(context.services, clearance=tlp)


async def who_gives_rights(services: Services) -> str:
    """Who can give a permission; "" if nobody can."""
    return await _either(services, permission="manageUser")


async def who_may_override(context: Context, clearance: int) -> str:
    """Who can override a rule for what needs this clearance; "" if nobody can."""
    return await _either(context.services, permission="manageUser", clearance=clearance)


async def other_admins(context: Context, clearance: int) -> list[str]:
    """Who else may decide on a run against the rules of what needs this clearance; logins."""
    admins = await context.services.core.who(permission="manageUser", clearance=clearance)
    return [one.login for one in admins if one.login != context.person.login]


async def _either(services: Services, **conditions: Any) -> str:
    try:
        return notices.either([person.login for person in await services.core.who(**conditions)])
    except ResponderBotError:  # it only completes a sentence
        return ""


async def explained(services: Services, error: ResponderBotError) -> Message:
    """An error as people read it; of what core or we have refused with who can do it, or give the right."""
    who, is_refused = "", error.code == "forbidden"
    if is_refused and isinstance(tlp := error.details.get("tlp"), int):
        who = await _either(services, clearance=tlp)
    elif is_refused and "permission" in error.details:
        who = await who_gives_rights(services)
    return notices.error(notices.sentence(error, who))


async def why_not_run(context: Context) -> str:
    """Why this person can't run anything, in a sentence; "" if they can."""
    if "manageAction" in context.person.permissions:
        return ""
    return notices.sentence(missing_permission("manageAction"), await who_gives_rights(context.services))


def missing_permission(permission: Permission) -> ResponderBotError:
    """The refusal of what needs this permission, as core's."""
    return ResponderBotError("forbidden", f"This needs {permission}.", details={"permission": permission})


def own_clearance(context: Context) -> int:
    """What this person may see where only they look: ephemeral message, modal, App Home, direct message."""
    return context.person.clearance
