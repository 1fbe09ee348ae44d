"""What org-admins manage from the App Home: people and groups. Requests for access are in `requests`."""

from typing import Any

from bot.cards import ids, people, views
from bot.cards.message import Block
from bot.cards.people import Place
from bot.features import responses
from bot.features.base import Ack, Context, Entry, Feature, Json
from bot.features.payload import button_token, clicked_element, view_metadata, view_of
from core.common.errors import ResponderBotError
from core.models import UserEntry


async def home_blocks(context: Context) -> list[Block]:
    """The part of the Home for org-admins; nothing for others."""
    if context.person is None or context.person.profile != "org-admin":
        return []
    requests = await context.core.access_requests()
    return people.home_blocks(sum(request.status == "pending" for request in requests))


async def on_people_button(context: Context) -> None:
    """Show the first page of the people."""
    await context.show_modal(await _people_view(context, Place()))


async def on_page_button(context: Context) -> None:
    """Show another page."""
    _, _, number = str(clicked_element(context).get("action_id")).partition(":")
    place = Place.of(view_metadata(view_of(context)))
    page = int(number) if number.isdecimal() and len(number) < 7 else 0
    await context.show_modal(await _people_view(context, Place(page, place.find)))


async def on_people_view(context: Context) -> Json:
    """Show whom the typed text finds."""
    typed = views.values(view_of(context)).get("find", "")
    return views.update(await _people_view(context, Place(find=typed[:100])))


async def on_person_menu(context: Context) -> None:
    """Ask whether to end or give back access, or say how to replace a key."""
    try:
        intent = await context.services.outbox.buttons.resolve(
            button_token(context), channel=context.channel, message_ts=context.message_ts, user=context.user
        )
    except ResponderBotError as error:
        if error.code != "gone":
            raise
        raise ResponderBotError("gone", "This list is too old. Open it again from the Home tab.") from error
    place = Place.of(view_metadata(view_of(context)))
    if intent.what == people.KEY:
        await context.show_modal(people.key_view(intent.object_id, place))
        return
    user = await _user(context, intent.object_id)
    await context.show_modal(people.access_view(user, place))


async def on_access_view(context: Context) -> Json:
    """End somebody's access or give it back, then show the list again. Core refuses who isn't an org-admin."""
    metadata = view_metadata(view_of(context))
    login, is_end = str(metadata.get("login") or ""), metadata.get("verb") == "disable"
    await context.core.set_disabled(login, is_end)
    done = f"{login} has no access any more." if is_end else f"{login} has access again."
    return views.update(await _people_view(context, Place.of(metadata), done))


async def on_groups_button(context: Context) -> None:
    """Show the groups."""
    usergroups = context.services.usergroups
    wrong = {check.name.removeprefix("group @"): check.message for check in context.services.group_checks()}
    await context.show_modal(people.groups_view(await context.core.groups(), usergroups, wrong))


async def _people_view(context: Context, place: Place, done: str = "") -> dict[str, Any]:
    users = await context.core.users()
    button = await responses.private_buttons(context, "people", lambda b: people.people_view(users, place, b))
    return people.people_view(users, place, button, done=done)


async def _user(context: Context, login: str) -> UserEntry:
    found = next((user for user in await context.core.users() if user.login == login), None)
    if found is None:
        raise ResponderBotError("not_found", f"There is no user {login}.")
    return found


FEATURE = Feature(
    actions={
        ids.ADMIN_PEOPLE: Entry(on_people_button, modal_title="People"),
        ids.ADMIN_GROUPS: Entry(on_groups_button, modal_title="Groups"),
        ids.PEOPLE_PAGE: Entry(on_page_button),
        ids.PEOPLE_MORE: Entry(on_person_menu),
    },
    views={
        ids.PEOPLE_VIEW: Entry(on_people_view, Ack.ANSWER),
        ids.PEOPLE_ACCESS_VIEW: Entry(on_access_view, Ack.ANSWER),
    },
)
