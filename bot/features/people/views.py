"""What org-admins manage in the App Home: people, groups, and requests for access."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bot.block_kit import ids, modals
from bot.block_kit.elements import actions, button_element
from bot.block_kit.text import clip, context, count, foreign, person_name, plain, section
from bot.message import Block, ButtonIds, Intent
from core.models import PROGRAM_PROFILES, TLP_NAMES, Group, UserEntry

PAGE = 20  # people
MAX_GROUPS = 50
ACCESS, KEY, GROUP = "user_access", "user_key", "group"  # of intents
KEY_TEXT = (
    "Keys don't pass through Slack. Whoever has {who}'s key acts as {who} without Slack and sees every TLP, and Slack "
    "would have read it. Run this where core runs; it prints the new key once, and ends the old one:\n`{command}`\n"
    "If a key has leaked, end the access here first: that works at once."
)


@dataclass(frozen=True)
class ListPosition:
    """Which people a list shows: those whose login has the text, from this page on. Kept in the view's metadata."""

    page: int = 0
    find: str = ""

    def to_text(self, **more: str) -> str:
        return json.dumps({**asdict(self), **more})

    @staticmethod
    def of(metadata: Mapping[str, Any]) -> "ListPosition":
        """What `to_text` wrote; the first page for anything else."""
        page, find = metadata.get("page"), metadata.get("find")
        return ListPosition(page if isinstance(page, int) and page >= 0 else 0, find if isinstance(find, str) else "")


def home_blocks(waiting: int) -> list[Block]:
    """The part of an org-admin's Home: two blocks, since the rest may have 98 of 100."""
    elements = [
        button_element(f"Requests for access ({waiting})" if waiting else "Requests for access", ids.ADMIN_REQUESTS),
        button_element("People", ids.ADMIN_PEOPLE),
        button_element("Groups", ids.ADMIN_GROUPS),
    ]
    if waiting:
        elements[0]["style"] = "primary"
    head = f"*Administration* · {count(waiting, 'request')} for access" if waiting else "*Administration*"
    return [section(head), actions(*elements)]


def people_view(
    users: Sequence[UserEntry], position: ListPosition, button: ButtonIds, *, done: str = ""
) -> dict[str, Any]:
    """A page of the people; `done` says what was changed just now."""
    matches = matching(users, position)
    last = max(0, (len(matches) - 1) // PAGE)
    page = min(position.page, last)
    blocks: list[Block] = [section(foreign(done, 500))] if done else []
    find = modals.text_field("find", "Find", initial=position.find, placeholder="A login, a profile or a group")
    blocks.append(find)
    of_page = f", page {page + 1} of {last + 1}" if last else ""
    blocks.append(
        context(f"{count(len(matches), 'person', 'people')}{of_page}" if matches else "Nobody has this in their login.")
    )
    blocks += [_person(user, button) for user in matches[page * PAGE : (page + 1) * PAGE]]
    pages = [("Back", page - 1)] if page else []
    pages += [("Next", page + 1)] if page < last else []
    if pages:
        elements = [button_element(label, ids.PEOPLE_PAGE, of=str(to)) for label, to in pages]
        blocks.append(actions(*elements))
    metadata = ListPosition(page, position.find).to_text()
    return modals.modal("People", blocks, callback_id=ids.PEOPLE_VIEW, submit="Find", metadata=metadata)


def matching(users: Sequence[UserEntry], position: ListPosition) -> list[UserEntry]:
    """Whose login, profile or group has the text: people before programs."""
    text = position.find.casefold().strip()
    matches = [user for user in users if any(text in word for word in (user.login, user.profile, *user.groups))]
    return sorted(matches, key=lambda user: (user.profile in PROGRAM_PROFILES, user.login))


def _person(user: UserEntry, button: ButtonIds) -> Block:
    is_program = user.profile in PROGRAM_PROFILES
    parts: list[str] = [user.profile]
    if not is_program:
        in_slack = ", ".join(f"<@{slack_id.rpartition(':')[2]}>" for slack_id in user.slack_ids[:3])
        parts += [f"TLP:{TLP_NAMES[user.clearance].upper()}", in_slack or "not in Slack"]
        parts += [f"@{group}" for group in user.groups[:10]]
    name = f"*{foreign(user.login, 254)}*" + (" · *disabled*" if user.disabled else "")
    shown = section(f"{name}\n{' · '.join(parts)}")
    if is_program or user.profile == "org-admin":
        return shown  # core lets nobody change them from here
    options = [
        ("Give access back" if user.disabled else "End access", Intent(ACCESS, user.login)),
        ("Replace the key", Intent(KEY, user.login)),
    ]
    more = {
        "type": "overflow",
        "action_id": ids.numbered(ids.PEOPLE_MORE, user.login[:200]),
        "options": [{"text": plain(text), "value": button(intent)} for text, intent in options],
    }
    return {**shown, "accessory": more}


def access_view(user: UserEntry, position: ListPosition) -> dict[str, Any]:
    """Asks whether to end somebody's access, or to give it back."""
    name = foreign(user.login, 254)
    if user.disabled:
        text = f"*{name}* gets access again, as {user.profile}, with the old key and links."
    else:
        text = (
            f"*{name}* can do nothing any more, in Slack and with a key, from the next request on. "
            "Runs that they have started go on."
        )
    verb = "enable" if user.disabled else "disable"
    return modals.modal(
        "Give access back?" if user.disabled else "End access?",
        [section(text)],
        callback_id=ids.PEOPLE_ACCESS_VIEW,
        submit="Give back" if user.disabled else "End access",
        metadata=position.to_text(login=user.login, verb=verb),
        close="Cancel",
    )


def key_view(login: str, position: ListPosition) -> dict[str, Any]:
    """The command that replaces a key, and why it isn't done in Slack."""
    command = f"responder-bot user key {foreign(login, 254)}"
    blocks: list[Block] = [section(KEY_TEXT.format(who=person_name(login), command=command))]
    back = button_element("Back to the list", ids.PEOPLE_PAGE, of=str(position.page))
    blocks.append(actions(back))
    return modals.modal("Replace the key", blocks, callback_id=ids.NOTICE_VIEW, metadata=position.to_text())


def groups_view(
    groups: Sequence[Group],
    usergroups: Mapping[str, str],
    states: Mapping[str, str],
    button: ButtonIds,
    *,
    done: str = "",
) -> dict[str, Any]:
    """All groups; `usergroups` are those of Slack with which some are kept in step, `states` what is known of them."""
    members = {**dict.fromkeys(usergroups, ()), **{group.name: tuple(group.members) for group in groups}}
    blocks: list[Block] = [section(foreign(done, 500))] if done else []
    for name in sorted(members)[:MAX_GROUPS]:
        names = ", ".join(person_name(login) for login in members[name][:50]) or "nobody"
        more = f" and {len(members[name]) - 50} more" if len(members[name]) > 50 else ""
        lines = [f"*@{foreign(name, 64)}* ({len(members[name])}): {names}{more}"]
        if name in usergroups:
            how = f": {foreign(states[name], 500)}" if name in states else ""
            lines.append(f"as <!subteam^{usergroups[name]}> in Slack{how}")
        shown = section(clip("\n".join(lines), 2900))
        if name not in usergroups:
            change = button_element("Change", ids.GROUP_CHANGE, of=name)
            shown["accessory"] = {**change, "value": button(Intent(GROUP, name))}
        blocks.append(shown)
    if len(members) > MAX_GROUPS:
        blocks.append(context(f"and {len(members) - MAX_GROUPS} more: `responder-bot group list`"))
    if not members:
        blocks.append(section("There are no groups yet. Policies name them, such as `@containment`."))
    new = button_element("New group", ids.GROUP_CHANGE, button(Intent(GROUP, "")), of="+")
    blocks.append(actions(new))
    return modals.modal("Groups", blocks, callback_id=ids.NOTICE_VIEW)


def group_view(name: str, in_slack: Sequence[str], others: Sequence[str]) -> dict[str, Any]:
    """Asks who is in a group; for a new one also for its name. `others` are members who aren't linked in Slack."""
    blocks: list[Block] = [] if name else [modals.text_field("name", "Name", placeholder="containment", optional=False)]
    element: dict[str, Any] = {"type": "multi_users_select", "action_id": ids.numbered(ids.VALUE, "members")}
    if in_slack:
        element["initial_users"] = list(in_slack)
    label = f"Members of @{name}" if name else "Members"
    field = {"type": "input", "block_id": "members", "label": plain(label), "optional": True, "element": element}
    blocks.append(field)
    if others:
        names = ", ".join(person_name(login) for login in others[:50])
        blocks.append(context(f"Not in Slack, and they stay: {names}"))
    metadata = json.dumps({"name": name})
    title = "Change a group" if name else "New group"
    return modals.modal(title, blocks, callback_id=ids.GROUP_VIEW, submit="Save", metadata=metadata, close="Cancel")
