"""The inputs of a run as fields of a modal: what they hold when they are shown, and what was submitted."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from functools import partial
from typing import Any

from bot.block_kit.elements import actions
from bot.clearance import RedactedView, view_of_all
from bot.features import responses, subjects
from bot.features.authorization import other_admins
from bot.features.base import Context
from bot.features.runs.targets import Target, ends_or_stays, on_each, to_choose, used_by
from bot.features.runs.views import inputs, run_form, runs
from bot.features.runs.views.request import RunRequest, submitted_options
from bot.message import Block, ButtonIds
from core.common.errors import ResponderBotError
from core.models import Action, Bulk, Measure, OfferedResponder, Parameter

MAX_PEOPLE = 20  # that are looked up for a form


async def form_view(
    context: Context,
    request: RunRequest,
    responder: OfferedResponder,
    targets: Sequence[Target],
    running: Action | None = None,
    menu: Sequence[Block] = (),
) -> dict[str, Any]:
    """The modal with the inputs as fields, and what the run can act on, if nobody has said yet.

    `running` is an open run of the responder on the target. Several may have a `menu` of responders: its options.
    """
    view, choices = targets[0].view, to_choose(request, targets)
    responder = await _with_admins(context, request, responder, view)
    form, logins = await form_of(context, request, responder, view_of_all([one.view for one in targets]))
    metadata = request.keeping(logins)
    if not request.again:
        _require_room(request, form, metadata.parameters)
    if request.is_several or (request.without and running is None):
        each = await on_each(context, request, responder, targets)
        return run_form.form_of_several(metadata, responder, form, each, choices, menu)
    found = await ends_or_stays(context, request, responder, targets)
    already = [one for one in found if running is None or one.id != running.id]
    waits = running or next(iter(_waiting(found)), None)
    may_review = await review(context, waits, view) if waits is not None else ()
    if running is None:
        metadata = beside_what_waits(metadata, responder, found, choices)
    used, login = await used_by(context, responder) if request.override_reason is not None else "", context.person.login
    return run_form.form_view(metadata, responder, view, form, running, choices, already, may_review, login, used)


def _waiting(found: Iterable[Measure | Action]) -> list[Action]:
    return [one for one in found if isinstance(one, Action) and runs.awaits_approval(one)]


def beside_what_waits(
    request: RunRequest, responder: OfferedResponder, found: Iterable[Measure | Action], to_choose: Sized = ()
) -> RunRequest:
    """The request to run beside the newest run of the responder that waits there, which its form shows.

    Not where it is still to be chosen what it acts on.
    """
    of = [one for one in _waiting(found) if one.responder_name == responder.name and not to_choose]
    same = [one for one in of if one.object_id == request.targets[0].object_id]
    return replace(request, anyway=max(same, key=lambda one: one.number).id if same else "")


async def _with_admins(
    context: Context, request: RunRequest, responder: OfferedResponder, view: RedactedView
) -> OfferedResponder:
    """The responder with who else may approve a run against the rules, where it needs no other approval."""
    if request.override_reason is None or responder.policy.approval:
        return responder
    return responder.model_copy(update={"approvers": await other_admins(context, view.subject.clearance)})


async def review(context: Context, running: Action, view: RedactedView) -> Sequence[Block]:
    """The button that opens a run that waits, for somebody who may decide on it; Withdraw for who asked for it."""
    render: Callable[[ButtonIds], Block] = partial(runs.end_button, running, view)
    if context.person.login != running.created_by:
        render = partial(runs.review_button, running)
        if context.person.login not in (await subjects.deciders(context.core, running.id))[0].get(running.id, ()):
            return ()
    return [actions(await responses.with_buttons(context, f"review:{running.id}", render))]


async def form_of(
    context: Context, request: RunRequest, responder: OfferedResponder, view: RedactedView
) -> tuple[inputs.Form, Mapping[str, str]]:
    """What the fields hold when they are shown, and the logins that count where a field stays empty."""
    declared, values = responder.parameters, request.parameters
    if not declared:
        return inputs.Form((), text=json.dumps(dict(values), ensure_ascii=False) if values else ""), {}
    repeated = None if values else await _repeated(context, request, responder)
    if repeated is not None:
        values = runs.given_inputs(repeated)
    people = await _people(context, declared, values)
    if repeated is not None:
        form = inputs.form_again(declared, repeated, view, people)
    else:
        form = inputs.form(declared, values, people=people)
    types = {parameter.name: parameter.type for parameter in declared}
    return form, {name: str(value) for name, value in form.kept.items() if types[name] == "user"}


async def _repeated(context: Context, request: RunRequest, responder: OfferedResponder) -> Action | Bulk | None:
    """The run or bulk that is repeated; None if it was another responder's, or on another object."""
    if request.is_bulk:
        return await context.core.bulk(request.again)
    action = await context.core.action(request.again) if request.again else None
    asked = [(responder.name, target.object_id) for target in request.targets]
    return action if action is not None and [(action.responder_name, action.object_id)] == asked else None


def _require_room(request: RunRequest, form: inputs.Form, kept: Mapping[str, Any]) -> None:
    """Raise ResponderBotError("bad_request") if something that was typed in a command has no room in the modal."""
    if lost := [name for name in form.kept if name in request.parameters and name not in kept]:
        raise ResponderBotError(
            "bad_request",
            f"{', '.join(lost)[:200]} is too long for Slack's form. Give the other inputs in the command too. "
            "Nothing was run.",
        )


async def _people(context: Context, declared: Sequence[Parameter], values: Mapping[str, Any]) -> Mapping[str, str]:
    """The Slack users of the logins in the values and the defaults."""
    people = [values.get(parameter.name) or parameter.default for parameter in declared if parameter.type == "user"]
    logins = list(dict.fromkeys(login for login in people if isinstance(login, str)))[:MAX_PEOPLE]
    users = await asyncio.gather(*(context.services.slack_user(context.team, login) for login in logins))
    return {login: user for login, user in zip(logins, users, strict=True) if user}


async def submitted(
    context: Context, request: RunRequest, responder: OfferedResponder, view: RedactedView, modal: Mapping[str, Any]
) -> tuple[RunRequest, Mapping[str, str]]:
    """The request with what the modal's fields have, and what is wrong with them by block id."""
    declared, key = responder.parameters or (), inputs.key_of(responder)
    values, problems = inputs.submitted(modal, declared, key)
    problems |= await _put_logins(context, declared, values, key)
    options, wrong = submitted_options(modal, request, key)
    if problems or wrong:
        return request, problems | wrong
    kept = dict(request.parameters)
    if request.again:
        form, _ = await form_of(context, replace(request, parameters={}), responder, view)
        kept = {**form.kept, **kept}
    return replace(options, parameters={**kept, **values}), {}


async def _put_logins(
    context: Context, declared: Sequence[Parameter], values: dict[str, Any], key: str
) -> Mapping[str, str]:
    """Put the logins of the people who were chosen in their place. Returns what is wrong by block id."""
    problems: dict[str, str] = {}
    for parameter in declared:
        if parameter.type != "user" or parameter.name not in values:
            continue
        login = await context.services.login(context.team, str(values[parameter.name]))
        if login:
            values[parameter.name] = login
        else:
            problem = "This person has no access to responder-bot; choose somebody who has."
            problems[inputs.block_id(key, parameter.name)] = problem
    return problems
