"""Run on all: one responder on the newest alerts of a group, see `bot/docs/storms.md#groups`."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.cards import group_runs, ids, names, notices
from bot.cards.lists import can_run
from bot.cards.text import count
from bot.features import bulk, responses
from bot.features.base import Context, Entry, Feature
from bot.features.group import NONE_VISIBLE, clicked_group
from bot.outbox.groups import AlertGroup
from core.common.errors import ResponderBotError
from core.models import OfferedResponder

TITLE = "Run on all"


@dataclass(frozen=True)
class _Targets:
    """The newest alerts of a group that a person may see, and what can run on each of them."""

    found: Sequence[bulk.Target]
    offered: Sequence[OfferedResponder]
    newest: int  # also those that they may not see
    total: int

    @property
    def on(self) -> str:
        """Such as `the newest 100 of 412 alerts`."""
        words = count(self.newest, "alert")
        if self.newest < self.total:
            words = f"the newest {self.newest} of {self.total:,} alerts"
        seen = len(self.found)
        return words if seen == self.newest else f"{seen} of {words}, those that you may see"


async def on_menu(context: Context) -> None:
    """Show the menu of responders, or, once one is chosen, ask for confirmation."""
    intent = await responses.clicked_intent(context)
    group = await clicked_group(context, intent)
    if intent is None or group is None:
        return
    responses.require_permission(context, "manageAction")
    targets = await _targets(context, group)
    if not targets.found:
        raise ResponderBotError("forbidden", NONE_VISIBLE)
    if intent.what == "group_ask":
        responder = next((one for one in targets.offered if one.id == intent.argument), None)
        if responder is None:
            raise ResponderBotError(
                "not_found", "That responder can no longer run on each of these alerts. Nothing was run."
            )
        await bulk.ask(context, responder, targets.found, targets.on, channel=group.channel)
        return
    if not targets.offered:
        text = f"No responder without inputs can run on each of {targets.on}. Choose Show alerts, and run it on one."
        await responses.show(context, TITLE, notices.notice(text))
        return
    await responses.show_with_buttons(
        context,
        TITLE,
        f"{group.key}:run",
        lambda button: group_runs.menu(group.key, targets.offered, targets.on, button=button),
    )


async def _targets(context: Context, group: AlertGroup) -> _Targets:
    groups = context.services.outbox.groups
    members = await groups.members(group.key, 0, bulk.MOST)
    found = list((await bulk.find_targets(context, [member.root_id for member in members])).values())
    offered: dict[str, OfferedResponder] = {}
    for n, target in enumerate(found):
        here = {one.id: one for one in target.offered if _is_ready(one)}
        offered = {name: one for name, one in offered.items() if name in here} if n else here
    ordered = sorted(offered.values(), key=lambda one: names.title(one).casefold())
    content = await groups.content(group, -1)
    return _Targets(found, ordered, len(members), content.count)


def _is_ready(responder: OfferedResponder) -> bool:
    """Whether it can run, and without inputs."""
    return can_run(responder) and not any(one.required for one in responder.parameters or ())


FEATURE = Feature(
    actions={
        ids.GROUP_RUN: Entry(on_menu, modal_title=TITLE),
    }
)
