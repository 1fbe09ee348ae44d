"""What org-admins manage from the App Home: people and groups. Requests for access are in `access_requests`."""

from collections.abc import Sequence
from typing import Any

from bot.block_kit import ids, modals
from bot.block_kit.text import count
from bot.features import responses
from bot.features.base import Ack, Context, Entry, Feature, Json
from bot.features.payload import clicked_element, view_metadata, view_of
from bot.features.people import views
from bot.features.people.views import ListPosition
from bot.identity import logins_by_slack_id
from bot.message import Block
from core.common.errors import ResponderBotError
from core.models import UserEntry

TOO_OLD = "This list is too old. Open it again from the Home tab."


async def home_blocks(context: Context) -> list[Block]:
    """The part of the Home for org-admins; nothing for others."""
    if context.person.profile != "org-admin":
        return []
    requests = await context.core.access_requests()
    return views.home_blocks(sum(request.status == "pending" for request in requests))


async def on_people_button(context: Context) -> None:
    """Show the first page of the people."""
    await context.show_modal(await _people_view(context, ListPosition()))


async def on_page_button(context: Context) -> None:
    """Show another page."""
    _, _, number = str(clicked_element(context).get("action_id")).partition(":")
    position = ListPosition.of(view_metadata(view_of(context)))
    page = int(number) if number.isdecimal() and len(number) < 7 else 0
    await context.show_modal(await _people_view(context, ListPosition(page, position.find)))


async def on_people_view(context: Context) -> Json:
    """Show the people that the typed text finds."""
    typed = modals.values(view_of(context)).get("find", "")
    return modals.update(await _people_view(context, ListPosition(find=typed[:100])))


async def on_person_menu(context: Context) -> None:
    """Ask whether to end or give back access, or say how to replace a key."""
    intent = await responses.clicked_intent(context, TOO_OLD)
    position = ListPosition.of(view_metadata(view_of(context)))
    if intent.what == views.KEY:
        await context.show_modal(views.key_view(intent.object_id, position))
        return
    user = await _user(context, intent.object_id)
    await context.show_modal(views.access_view(user, position))


async def on_access_view(context: Context) -> Json:
    """End somebody's access or give it back, then show the list again. Core refuses who isn't an org-admin."""
    metadata = view_metadata(view_of(context))
    login, is_end = str(metadata.get("login") or ""), metadata.get("verb") == "disable"
    await context.core.set_disabled(login, is_end)
    done = f"{login} no longer has access." if is_end else f"{login} has access again."
    return modals.update(await _people_view(context, ListPosition.of(metadata), done))


async def on_groups_button(context: Context) -> None:
    await context.show_modal(await _groups_view(context))


async def on_group_button(context: Context) -> None:
    """Ask who is in a group, or in a new one."""
    name = (await responses.clicked_intent(context, TOO_OLD)).object_id
    users, group = await context.core.users(), await _group(context, name)
    linked = {login: slack_user for slack_user, login in logins_by_slack_id(users, context.team).items()}
    in_slack = [linked[login] for login in group if login in linked]
    await context.show_modal(views.group_view(name, in_slack, [login for login in group if login not in linked]))


async def on_group_view(context: Context) -> Json:
    """Set the members of a group; who isn't linked in Slack stays in it."""
    view = view_of(context)
    name = str(view_metadata(view).get("name") or "")
    new = "" if name else modals.values(view).get("name", "").strip().removeprefix("@").lower()
    chosen, by_slack_id = modals.users(view, "members"), logins_by_slack_id(await context.core.users(), context.team)
    if unknown := [user for user in chosen if user not in by_slack_id]:
        problem = f"{count(len(unknown), 'of them has', 'of them have')} no access yet; they can request it first."
        return modals.errors({"members": problem})
    before = await _group(context, name or new)
    if new and (before or new in context.services.usergroups):
        return modals.errors({"name": f"There is a group @{new} already."})
    others = [login for login in before if login not in by_slack_id.values()]
    try:
        group = await context.core.set_group(name or new, [*others, *(by_slack_id[user] for user in chosen)])
    except ResponderBotError as error:
        if new and error.code in ("bad_request", "not_found"):
            return modals.errors({"name": error.message})
        raise
    return modals.update(await _groups_view(context, f"@{group.name} has {count(len(group.members), 'member')} now."))


async def _group(context: Context, name: str) -> Sequence[str]:
    """The members of a group; nobody if there is none."""
    return next((group.members for group in await context.core.groups() if group.name == name), ())


async def _groups_view(context: Context, done: str = "") -> dict[str, Any]:
    groups, usergroups = await context.core.groups(), context.services.usergroups
    states = {check.name.removeprefix("group @"): check.message for check in context.services.group_checks()}
    return await responses.with_buttons(
        context, "groups", lambda button: views.groups_view(groups, usergroups, states, button, done=done)
    )


async def _people_view(context: Context, position: ListPosition, done: str = "") -> dict[str, Any]:
    users = await context.core.users()
    return await responses.with_buttons(
        context, "people", lambda button: views.people_view(users, position, button, done=done)
    )


async def _user(context: Context, login: str) -> UserEntry:
    entry = next((user for user in await context.core.users() if user.login == login), None)
    if entry is None:
        raise ResponderBotError("not_found", f"There is no user {login}.")
    return entry


FEATURE = Feature(
    actions={
        ids.ADMIN_PEOPLE: Entry(on_people_button, modal_title="People"),
        ids.ADMIN_GROUPS: Entry(on_groups_button, modal_title="Groups"),
        ids.PEOPLE_PAGE: Entry(on_page_button),
        ids.PEOPLE_MORE: Entry(on_person_menu),
        ids.GROUP_CHANGE: Entry(on_group_button),
    },
    views={
        ids.PEOPLE_VIEW: Entry(on_people_view, Ack.RESPONSE),
        ids.GROUP_VIEW: Entry(on_group_view, Ack.RESPONSE),
        ids.PEOPLE_ACCESS_VIEW: Entry(on_access_view, Ack.RESPONSE),
    },
)
