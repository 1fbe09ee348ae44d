"""Make a case from an alert: with a template of this name, or one that is picked in a modal."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bot.block_kit import ids, modals
from bot.block_kit.text import code, sections
from bot.clearance import RedactedView, Subject
from bot.features import responses, subjects
from bot.features.base import Ack, Command, Context, Entry, Feature
from bot.features.cases import views
from bot.features.command_text import closest_match, match_names, split_name_and_id
from bot.features.runs import flow
from bot.features.runs.targets import run_target
from bot.features.runs.views.request import RunRequest
from core.common.errors import ResponderBotError
from core.models import CaseTemplate

LISTED = 500

USAGE = "case ~id [TEMPLATE or ~case]"


async def on_case_command(context: Context) -> None:
    """Ask before the case is made, with the template, or the alert goes into the case, that was typed."""
    name, alert_id = split_name_and_id(context.text)
    await ask(context, alert_id, name)


async def ask(context: Context, alert_id: str, name: str = "") -> None:
    """Ask before the case is made, and which template to use if there are some, or which open case instead.

    A `name` is of the template, or the id of the case.
    """
    alert = await subjects.alert(context, alert_id)
    view = subjects.require_visible(context, Subject.alert(alert))
    responses.require_permission(context, "manageCase")
    if alert.case:
        go_on = f"`{context.services.command} alert {alert.case}` shows it"
        raise ResponderBotError("bad_request", f"Alert {alert_id} is in case {alert.case} already: {go_on}.")
    if name.startswith("~"):
        await _ask_into(context, view, name)
        return
    templates, into = await _templates(context), partial(views.into_menu, alert_id, await _open_cases(context))
    if name:
        templates = [_named(name, templates, context, alert_id)]
    what = [*sections(views.becomes_case(view)), *await responses.with_buttons(context, f"into:{alert_id}", into)]
    if not templates:
        form = modals.ask(views.TITLE, ids.GROUP_CASE_VIEW, alert_id, what)
        await responses.open_view(context, form, f"Choose *{views.TITLE}* again.")
        return
    own, command = alert.case_template or "", context.services.command
    await responses.show_with_buttons(
        context,
        views.TITLE,
        f"case:{alert_id}",
        lambda button: views.template_picker(alert_id, what, templates, own=own, button=button, command=command),
    )


async def on_into_menu(context: Context) -> None:
    """Ask before the alert goes into the case that was picked."""
    intent = await responses.clicked_intent(context)
    await ask(context, intent.object_id, intent.argument)


async def _ask_into(context: Context, view: RedactedView, case_id: str) -> None:
    subject, _ = await subjects.with_document(context.core, case_id)
    case = subjects.require_visible(context, subject)
    if subject.kind != "case" or subject.closed is not None:
        raise ResponderBotError("bad_request", f"{case_id} is no open case. Nothing was changed.")
    key, what = f"{case_id}>{view.subject.id}", sections(views.goes_into(view, case))
    form = modals.ask(views.INTO, ids.GROUP_CASE_VIEW, key, what)
    await responses.open_view(context, form, f"Choose *{views.TITLE}* again.")


async def _open_cases(context: Context) -> list[RedactedView]:
    """The newest open cases that this person may see."""
    return await subjects.visible_of(context, [case.id for case in await context.core.open_cases()])


async def on_template_button(context: Context) -> None:
    """Make the case with the template that was picked; "" is the alert's own, if it has one."""
    intent = await responses.clicked_intent(context)
    case = await context.core.create_case_from_alert(intent.object_id, intent.argument)
    context.refresh(intent.object_id)
    used = f" with the template {code(case.template, 200)}" if case.template else ""
    text = f"Case {case.id} was made from alert {intent.object_id}{used}. The alert's thread tells how it goes."
    await responses.show_with_buttons(context, views.MADE, f"made:{case.id}", partial(views.made, text, case.id))


async def on_make_case_button(context: Context) -> None:
    """Make the case that a responder needs, unless there is one by now, and go on to its run."""
    intent = await responses.clicked_intent(context)
    request = RunRequest.from_text(intent.argument)
    if (await context.core.alert(intent.object_id)).case is None:
        await context.core.create_case_from_alert(intent.object_id)
        context.refresh(intent.object_id)
    responder, targets = await flow.offered(context, request)
    target = run_target(targets[0].view.subject)  # an observable that was merged has another id by now
    await flow.proceed(context, replace(request, targets=(target,)), responder, targets)


async def _templates(context: Context) -> Sequence[CaseTemplate]:
    return await context.core.search(CaseTemplate, "/api/case/template/_search", range=f"0-{LISTED}", sort=["name"])


def _named(name: str, templates: Sequence[CaseTemplate], context: Context, alert_id: str) -> CaseTemplate:
    """The template that was typed. Raises ResponderBotError with what was probably meant."""
    names = [template.name for template in templates]
    matches = match_names(name, names)
    if len(matches) == 1:
        return next(template for template in templates if template.name == matches[0])
    if matches:
        raise ResponderBotError("bad_request", f"{name[:100]!r} could be {', '.join(matches[:10])}; which one?")
    command, meant = f"{context.services.command} case {alert_id}", closest_match(name, names)
    if not names:
        raise ResponderBotError("not_found", f"There is no case template yet. `{command}` makes a case without one.")
    hint = f"`{command} {meant}`" if meant else f"`{command}`, which lists them"
    raise ResponderBotError("not_found", f"There is no case template {name[:100]!r}. Did you mean {hint}?")


FEATURE = Feature(
    commands={"case": Command(Entry(on_case_command, Ack.WRITE), USAGE, "make a case of an alert", "manageCase")},
    actions={
        ids.CASE_TEMPLATE: Entry(on_template_button, Ack.WRITE),
        ids.INTO_CASE: Entry(on_into_menu),
        ids.MAKE_CASE: Entry(on_make_case_button, Ack.WRITE),
    },
)
