"""The menus and buttons that lead to a run: on cards, in questions, on groups, and for several objects."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.cards import ids, names, notices, questions, run_form, runs
from bot.cards.lists import NOTHING, responder_of_option, target_of_option
from bot.cards.run_request import RunRequest
from bot.cards.text import count
from bot.features import home, responses, subjects
from bot.features.base import Ack, Context, Entry, Feature
from bot.features.group import NONE_VISIBLE, clicked_group
from bot.features.payload import button_token, is_ephemeral, selected_value
from bot.features.runs import flow
from bot.features.runs.targets import MOST, Target, find_targets, run_target
from bot.outbox.groups import AlertGroup
from bot.redaction import Subject
from core.common.errors import ResponderBotError
from core.models import OfferedResponder

GROUP_TITLE = "Run on all"


async def on_responder_menu(context: Context) -> None:
    """Run the responder that was chosen on a card, ask for confirmation, or say why it can't run."""
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    rotated = asyncio.create_task(context.services.outbox.buttons.rotate(button_token(context)))
    try:
        target_id = target_of_option(selected_value(context)) or intent.object_id
        subject, offered = await subjects.offered(context.core, target_id)
    finally:
        await rotated
    started = False
    try:
        started = await _start_selected(context, subject, offered)
    finally:
        if not started and not is_ephemeral(context):
            await responses.refresh_cards(context, subject)  # else the menu keeps showing the selected option


async def _start_selected(context: Context, subject: Subject, offered: Sequence[OfferedResponder]) -> bool:
    view = subjects.require_visible(context, subject)
    responses.require_permission(context, "manageAction")
    if selected_value(context) == NOTHING:
        return False
    responder = responder_of_option(offered, selected_value(context))
    if responder is None:
        raise ResponderBotError("not_found", "That responder is no longer on offer; open the menu again.")
    request = RunRequest((run_target(subject),), responder.id, channel=context.channel)
    return await flow.proceed(context, request, responder, [Target(view, offered)])


async def on_run_button(context: Context) -> None:
    """Run what the person confirmed; ask again if the run beside which it was to run has ended."""
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    request = RunRequest.from_text(intent.argument)
    if intent.what == "form":
        await _show_form(context, request)
        return
    running = await context.core.action(request.anyway) if request.anyway else None
    if running is not None and not runs.is_open(running):
        responder, targets = await flow.offered(context, request)
        await flow.ask(context, replace(request, anyway=""), responder, targets, ended=running)
        return
    await flow.start(context, request, f"run-{button_token(context)}")


async def on_form_button(context: Context) -> None:
    """Show the form: for the inputs, or for why rules are overridden."""
    intent = await responses.clicked_intent(context)
    if intent is not None:
        await _show_form(context, RunRequest.from_text(intent.argument))


async def _show_form(context: Context, request: RunRequest) -> None:
    responder, targets = await flow.offered(context, request)
    if request.override_reason is not None and responder.can_run:
        raise ResponderBotError("conflict", "No rule stands in the way of it any more; run it as usual.")
    await flow.show_form(context, request, responder, targets[0].view)


async def on_run_again_button(context: Context) -> None:
    """Run the same responder on the same object again, after confirmation if its policy wants one."""
    intent = await responses.clicked_intent(context)
    if intent is None:
        return
    previous = await context.core.action(intent.object_id)
    request = replace(RunRequest.again_of(previous), channel=context.channel)
    responder, targets = await flow.offered(context, request)
    if not responder.parameters and runs.lost_secret(previous):  # a form asks for a secret again
        raise ResponderBotError(
            "conflict",
            f"{names.title(responder)} can't be repeated: its inputs had a secret, which isn't kept. Nothing was run. "
            "Run it with new inputs.",
        )
    target = run_target(targets[0].view.subject)  # an observable that was merged has another id by now
    given = {} if responder.parameters else runs.given_inputs(previous)
    request = replace(request, targets=(target,), responder_id=responder.id, parameters=given)
    # Slack sends the click of a button with a confirm dialog only after the person confirmed.
    confirmed = intent.argument == "confirmed"
    started = await flow.proceed(context, request, responder, targets, confirmed=confirmed)
    if started and home.is_home(context):
        await home.publish(context)


async def on_dismiss_button(context: Context) -> None:
    """Delete the question and run nothing."""
    await context.replace_original(None)


# --- all alerts of a group ------------------------------------------------------------------------------------------


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
        words = count(self.newest, "alert")
        if self.newest < self.total:
            words = f"the newest {self.newest} of {self.total:,} alerts"
        visible = len(self.targets)
        return words if visible == self.newest else f"{visible} of {words}, those that you may see"


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
        responder = next((one for one in members.offered if one.id == intent.argument), None)
        if responder is None:
            raise ResponderBotError(
                "not_found", "That responder can no longer run on each of these alerts. Nothing was run."
            )
        objects = tuple(run_target(target.view.subject) for target in members.targets)
        request = RunRequest(objects, responder.id, channel=group.channel)
        await flow.ask(context, request, responder, members.targets, members.on)
    elif members.offered:
        await responses.show_with_buttons(
            context,
            GROUP_TITLE,
            f"{group.key}:run",
            lambda button: questions.which_responder(group.key, members.offered, members.on, button=button),
        )
    else:
        text = f"No responder without inputs can run on each of {members.on}. Choose Show alerts, and run it on one."
        await responses.show(context, GROUP_TITLE, notices.notice(text))


async def _members(context: Context, group: AlertGroup) -> _Members:
    groups = context.services.outbox.groups
    newest = await groups.members(group.key, 0, MOST)
    targets = list((await find_targets(context, [member.root_id for member in newest])).values())
    offered: dict[str, OfferedResponder] = {}
    for n, target in enumerate(targets):
        here = {one.id: one for one in target.offered if _is_ready(one)}
        offered = {name: one for name, one in offered.items() if name in here} if n else here
    ordered = sorted(offered.values(), key=lambda one: names.title(one).casefold())
    content = await groups.content(group, -1)
    return _Members(targets, ordered, len(newest), content.count)


def _is_ready(responder: OfferedResponder) -> bool:
    """Whether it can run, and without inputs."""
    return responder.can_run and not any(one.required for one in responder.parameters or ())


FEATURE = Feature(
    actions={
        ids.MENU: Entry(on_responder_menu, Ack.WRITE),
        ids.RUN: Entry(on_run_button, Ack.WRITE),
        ids.RUN_ANYWAY: Entry(on_run_button, Ack.WRITE),
        ids.BULK_START: Entry(on_run_button, Ack.WRITE),
        ids.BREAK_GLASS: Entry(on_form_button, modal_title=run_form.TITLE),
        ids.RUN_AGAIN: Entry(on_run_again_button, Ack.WRITE),
        ids.DISMISS: Entry(on_dismiss_button),
        ids.GROUP_RUN: Entry(on_group_menu, modal_title=GROUP_TITLE),
    }
)
