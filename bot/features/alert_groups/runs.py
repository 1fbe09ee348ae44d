"""Run a responder on all alerts of a group."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.block_kit import ids, names, notices
from bot.block_kit.text import count
from bot.clearance import CLEAR
from bot.features import responses
from bot.features.alert_groups import views
from bot.features.alert_groups.handlers import NONE_VISIBLE, clicked_group
from bot.features.base import Context, Entry, Feature
from bot.features.runs import flow
from bot.features.runs.targets import MOST, Target, find_targets, run_target
from bot.features.runs.views.request import RunRequest
from bot.outbox.alert_groups import AlertGroup
from core.common.errors import ResponderBotError
from core.models import OfferedResponder

GROUP_TITLE = "Run on all"


@dataclass(frozen=True)
class _Members:
    """The newest alerts of a group that a person may see, and what can run on each of them."""

    targets: Sequence[Target]
    offered: Sequence[OfferedResponder]
    newest: int  # also those that they may not see
    total: int

    @property
    def on(self) -> str:
        """Such as `the newest 100 of 412 alerts`."""
        newest = count(self.newest, "alert")
        if self.newest < self.total:
            newest = f"the newest {self.newest} of {self.total:,} alerts"
        visible = len(self.targets)
        return newest if visible == self.newest else f"{visible} of {newest}, those that you may see"


async def on_group_menu(context: Context) -> None:
    """Show the menu of responders for a group, or, once one is chosen, ask for confirmation."""
    intent = await responses.clicked_intent(context)
    group = await clicked_group(context, intent)
    if intent is None or group is None:
        return
    responses.require_permission(context, "manageAction")
    members = await _members(context, group)
    if not members.targets:
        raise ResponderBotError("forbidden", NONE_VISIBLE)
    if intent.what == "group_ask":
        responder = next((offer for offer in members.offered if offer.id == intent.argument), None)
        if responder is None:
            raise ResponderBotError(
                "not_found", "That responder can no longer run on each of these alerts. Nothing was run."
            )
        objects = tuple(run_target(target.view.subject) for target in members.targets)
        request = RunRequest(objects, responder.id, channel=group.channel)
        await flow.ask(context, flow.Question(request, responder, members.targets, members.on))
    elif members.offered:
        await responses.show_with_buttons(
            context,
            GROUP_TITLE,
            f"{group.key}:run",
            lambda button: views.which_responder(group.key, members.offered, members.on, button=button),
        )
    else:
        text = f"No responder without inputs can run on each of {members.on}. Choose Show alerts, and run it on one."
        await responses.show(context, GROUP_TITLE, notices.notice(text))


async def _members(context: Context, group: AlertGroup) -> _Members:
    groups = context.services.outbox.alert_groups
    newest = await groups.members(group.key, 0, MOST)
    targets = list((await find_targets(context, [member.root_id for member in newest])).values())
    offered: dict[str, OfferedResponder] = {}
    for n, target in enumerate(targets):
        here = {responder.id: responder for responder in target.offered if _is_ready(responder)}
        offered = {name: responder for name, responder in offered.items() if name in here} if n else here
    ordered = sorted(offered.values(), key=lambda responder: names.title(responder).casefold())
    content = await groups.content(group, CLEAR)
    return _Members(targets, ordered, len(newest), content.count)


def _is_ready(responder: OfferedResponder) -> bool:
    """Whether it can run, and without inputs."""
    return responder.can_run and not any(parameter.required for parameter in responder.parameters or ())


FEATURE = Feature(actions={ids.GROUP_RUN: Entry(on_group_menu, modal_title=GROUP_TITLE)})
