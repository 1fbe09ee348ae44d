"""Run on all: one responder on the newest alerts of a group, see `bot/docs/storms.md#groups`."""

from collections.abc import Sequence
from dataclasses import dataclass

from bot.cards import group_runs, ids, names, notices
from bot.cards.lists import can_run
from bot.cards.text import count
from bot.features import responses
from bot.features.access import own_clearance
from bot.features.base import Ack, Context, Entry, Feature
from bot.features.group import NONE_VISIBLE, clicked_group, documents_of
from bot.features.payload import button_token
from bot.features.run import until_answered
from bot.outbox.groups import AlertGroup
from bot.redaction import RedactedView, Subject, may_see
from core.common.errors import ResponderBotError
from core.models import BulkInput, OfferedResponder, RunTarget

TITLE = "Run on all"
MOST = 100  # targets of one request to core


@dataclass(frozen=True)
class _Targets:
    """The newest alerts of a group that a person may see, and what can run on each of them."""

    views: Sequence[RedactedView]
    offered: Sequence[OfferedResponder]
    newest: int  # also those that they may not see
    total: int

    @property
    def on(self) -> str:
        """Such as `the newest 100 of 412 alerts`."""
        words = count(self.newest, "alert")
        if self.newest < self.total:
            words = f"the newest {self.newest} of {self.total:,} alerts"
        seen = len(self.views)
        return words if seen == self.newest else f"{seen} of {words}, those that you may see"


async def on_menu(context: Context) -> None:
    """Show the menu of responders, or, once one is chosen, ask for confirmation."""
    intent = await responses.clicked_intent(context)
    group = await clicked_group(context, intent)
    if intent is None or group is None:
        return
    responses.require_permission(context, "manageAction")
    targets = await _targets(context, group)
    if not targets.views:
        raise ResponderBotError("forbidden", NONE_VISIBLE)
    if intent.what == "group_ask":
        responder = next((one for one in targets.offered if one.id == intent.argument), None)
        if responder is None:
            raise ResponderBotError(
                "not_found", "That responder can no longer run on each of these alerts. Nothing was run."
            )
        await responses.show_with_buttons(
            context,
            TITLE,
            f"{group.key}:confirm:{context.idempotency_key}",  # each question has a button, so a key, of its own
            lambda button: group_runs.confirm(group.key, responder, targets.views, targets.on, button=button),
        )
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


async def on_start(context: Context) -> None:
    """Run it on the alerts that the question named, once however often it is clicked; say what became of it."""
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    found, _, responder_id = intent.argument.partition(" ")
    targets = [RunTarget(object_type="alert", object_id=alert_id) for alert_id in found.split(",")]
    body = BulkInput(responder_id=responder_id, targets=targets, only_if_idle=True)
    key = f"bulk-{button_token(context)}"
    answer = await until_answered(lambda: context.core.run_bulk(body, key))
    if answer is None:
        text = "The runs may have started: the responder service stopped answering. Click again; nothing runs twice."
        raise ResponderBotError("unavailable", text)
    await responses.respond(context, group_runs.outcome(answer, context.services.command), TITLE)


async def _targets(context: Context, group: AlertGroup) -> _Targets:
    clearance, outbox = own_clearance(context), context.services.outbox
    members = outbox.groups.members(group.key, 0, MOST)
    total = outbox.groups.content(group, -1).count
    documents = await documents_of(context, [member.root_id for member in members], responders=True)
    views: list[RedactedView] = []
    offered: dict[str, OfferedResponder] = {}
    for member in members:
        document = documents.get(member.root_id)
        if document is None or document.alert is None or not may_see(clearance, document.alert.tlp):
            continue
        here = {one.id: one for one in document.responders.get(document.id, ()) if _is_ready(one)}
        offered = {name: one for name, one in offered.items() if name in here} if views else here
        views.append(RedactedView(Subject.alert(document.alert), clearance))
    ordered = sorted(offered.values(), key=lambda one: names.title(one).casefold())
    return _Targets(views, ordered, len(members), total)


def _is_ready(responder: OfferedResponder) -> bool:
    """Whether it can run, and without inputs."""
    return can_run(responder) and not any(one.required for one in responder.parameters or ())


FEATURE = Feature(
    actions={
        ids.GROUP_RUN: Entry(on_menu, modal_title=TITLE),
        ids.GROUP_START: Entry(on_start, Ack.WRITE),
    }
)
