"""The modals that lead to a run: for the objects, the responder, and its inputs."""

from collections.abc import Iterable, Sequence
from typing import Any

from bot.block_kit import ids, modals, names, notices
from bot.block_kit.elements import MAX_OPTIONS, actions, button_element
from bot.block_kit.subjects import SIGNS, object_line, responder_menu
from bot.block_kit.text import (
    OPTION_LIMIT,
    VIEW_TITLE_LIMIT,
    clean,
    clip_apart,
    context,
    escape,
    foreign_plain,
    plain,
    section,
    sections,
)
from bot.clearance import RedactedView, Subject
from bot.features.responders import views as responders
from bot.features.responders.views import option_value
from bot.features.runs.views import acts_on, inputs, questions, runs, undo_state
from bot.features.runs.views.request import RunRequest, time_field, why_field
from bot.message import Block
from core.models import OBJECT_TYPES, SEVERITY_NAMES, Action, Measure, OfferedResponder

TITLE, SEVERAL_TITLE = "What should run?", "Select several"
MOST_NAMED = 10  # of several, where nobody decides yet
RESPONDER = "responder"  # the menu of responders for several objects
EVERY = "every"  # the value of the option that stands for all others


def start_view(
    request: RunRequest,
    subject: Subject | None,
    *,
    clearance: int,
    choices: Sequence[Block] = (),
    responder: OfferedResponder | None = None,
    form: inputs.Form | None = None,
    to_choose: Sequence[acts_on.Choice] = (),
    in_force: Sequence[Measure | Action] = (),
    who: str = "",
    login: str = "",
) -> dict[str, Any]:
    """Asks `login` for the object, once it is known for the responder, and once that is known for its inputs.

    `choices` are options, if only these can be chosen; `in_force` is what a run would repeat; `who` can open the
    object if this person can't.
    """
    chosen = object_options([subject], clearance)[0] if subject is not None else None
    label = "Which one? The message names several." if choices else "Alert"
    blocks: list[Block] = [modals.search_field("object", label, "Search, or type an id", choices, chosen)]
    if subject is not None:
        view = RedactedView(subject, clearance)
        blocks += _about(view, responder, who)
        if view.is_open and responder is not None:
            blocks += sections(acts_on.lines(request.targets[0], responder, view))
            blocks += _asks(request, responder, view, form or inputs.Form(()), to_choose, in_force, login)
    elif not choices:
        blocks.append(actions(button_element("Run on several alerts", ids.SEVERAL_ALERTS)))
    return _modal(request, blocks, questions.deed(request, responder) if responder is not None else "Next", responder)


def targets_view(request: RunRequest, of: str, options: Sequence[Block], most: int) -> dict[str, Any]:
    """Asks for the objects `of` this: some of these options, or what a search finds.

    None is chosen beforehand; one entry stands for all the options.
    """
    element: dict[str, Any] = {
        "type": "multi_static_select" if options else "multi_external_select",
        "action_id": ids.SEVERAL_TARGETS,
        "placeholder": plain("Choose, or type to search"),
        "max_selected_items": most,
    }
    if options:
        listed = options[: MAX_OPTIONS - 1]
        every = {"text": plain(f"All {len(listed)} of them"), "value": EVERY}
        element["options"] = [*([every] if len(listed) > 1 else []), *listed]
    else:
        element["min_query_length"] = 0
    label = of if options or request.targets else f"{of}; typing searches all, closed ones too"
    menu = modals.input_block("targets", label, element)
    then = "run a responder" if request.targets else "assign or close them, make a case, or run a responder"
    blocks = [menu, context(f"At most {most}. Then: {then}. Nothing happens yet.")]
    return _modal(request, blocks, "Next", several=SEVERAL_TITLE)


def responder_view(
    request: RunRequest, offered: Sequence[tuple[OfferedResponder, int]], on: str, views: Sequence[RedactedView]
) -> dict[str, Any]:
    """Asks for one of these responders, each with the number of the objects that it would run on now, or -1.

    `on` says on how many of them, and `views` which.
    """
    total = len(request.targets)
    each_of = {0: f"on 0 of {total}, asked for already", -1: "can't run now", total: "on each"}
    on_so_many = [(one, each_of.get(number, f"on {number} of {total}")) for one, number in offered]
    options = [responders.option(one, responders.needs(one, on_each)) for one, on_each in on_so_many[:MAX_OPTIONS]]
    said = ([runs.beside_title(view), runs.closed_line(view)] for view in views)
    listed = [(view, "", of) for view, of in zip(views, said, strict=True)]
    blocks = questions.listed(f"*{on}*", listed, MOST_NAMED)
    # The form takes its place at once: a Next here would be the deed under the same finger.
    blocks += [_responder_menu(options, is_field=False)] if options else []
    not_now = responders.not_now([one for one, _ in offered if not one.can_run])
    blocks += [context(not_now)] if not_now else []
    if all(target.object_type == "alert" for target in request.targets):
        assign = button_element("Assign to me", ids.SEVERAL_ASSIGN)
        close, case = button_element("Close ...", ids.SEVERAL_CLOSE), button_element("Make a case", ids.SEVERAL_CASE)
        blocks.append(actions(assign, close, case))
    return _modal(request, blocks, "", several=f"Selected ({total})")


def form_view(
    request: RunRequest,
    responder: OfferedResponder,
    view: RedactedView,
    form: inputs.Form,
    running: Action | None = None,
    to_choose: Sequence[acts_on.Choice] = (),
    in_force: Sequence[Measure | Action] = (),
    review: Sequence[Block] = (),
    login: str = "",
    used_by: str = "",
) -> dict[str, Any]:
    """Asks `login` for the inputs, and what to act on of `to_choose`; to submit it confirms the run.

    `running` is an open run of the responder beside which it would run, `in_force` what it would repeat, and `review`
    opens what of this waits for approval. `used_by` says who used the limit that an override is against; mrkdwn.
    """
    blocks, submit = questions.on_what(request, responder, view), questions.deed(request, responder)
    if running is not None:
        blocks, review = questions.open_run(request, running, responder, view, review), ()
    if request.override_reason is not None:
        rules, submit = responders.overridden(responder.refusals or (), view, is_described=True), "Ask to override"
        blocks.append(section("\n".join(filter(None, [f"🔴 *Against the rules*: {rules}.", used_by]))))
    blocks += _asks(request, responder, view, form, to_choose, in_force, login, review)
    return _modal(request, blocks, submit, responder)


def form_of_several(
    request: RunRequest,
    responder: OfferedResponder,
    form: inputs.Form,
    each: questions.OnEach,
    to_choose: Sequence[acts_on.Choice] = (),
    menu: Sequence[Block] = (),
) -> dict[str, Any]:
    """Asks for what all the runs get, and what to act on of `to_choose`, below the objects; to submit it confirms them.

    `menu` are the options of the responders among which this one was chosen.
    """
    key, is_some = inputs.key_of(responder), bool(each.accepted)
    found = [one for row in each.accepted for one in row.in_force]
    first = [
        *questions.policy_words(responder.policy, responder.description),
        *questions.effect(responder, request, each),
        *time_field(key, responder, request.undo_after_minutes),
    ]
    fields = [
        *acts_on.field(to_choose, key, _ended(found, responder), has_others=bool(each.ready)),
        *inputs.fields(form, key),
        *why_field(request, responder),
    ]
    shown = questions.on_each(responder, each, first) + fields if is_some else questions.on_each(responder, each)
    is_counted = each.ready and not (each.undecided or each.is_ticked)
    end = f" ({questions.able_now(responder, each)})" if is_counted else ""
    on = " (ticked)" if each.is_ticked else end
    submit = f"{questions.deed(request, responder, VIEW_TITLE_LIMIT - len(on))}{on}" if is_some else ""
    if each.is_ticked and questions.approvals_needed(request, responder):  # which has no room for the deed
        submit = "Ask for the ticked"
    blocks = [*([_responder_menu(menu, responder, is_field=bool(submit))] if menu else []), *shown]
    return _modal(request, blocks, submit, several=names.in_view(names.title(responder), end))


def _responder_menu(options: Sequence[Block], of: OfferedResponder | None = None, *, is_field: bool = True) -> Block:
    """The menu of responders for several objects, which tells at once what was chosen, such as the one `of` this form.

    It is no field in a modal without submit, where Slack refuses one.
    """
    element: dict[str, Any] = {"type": "static_select", "action_id": ids.START_RESPONDER, "options": list(options)}
    chosen = option_value(of) if of is not None else ""
    if initial := next((one for one in options if one["value"] == chosen), None):
        element["initial_option"] = initial
    if not is_field:
        return {**section("*Responder*"), "block_id": RESPONDER, "accessory": element}
    return {**modals.input_block(RESPONDER, "Responder", element), "dispatch_action": True}


def _asks(
    request: RunRequest,
    responder: OfferedResponder,
    view: RedactedView,
    form: inputs.Form,
    to_choose: Sequence[acts_on.Choice],
    in_force: Sequence[Measure | Action],
    login: str,
    review: Sequence[Block] = (),
) -> list[Block]:
    """What the run acts on, what it does, and the fields; `review` opens what waits for the same."""
    key, ended = inputs.key_of(responder), _ended(in_force, responder) if to_choose else ()
    before = questions.in_force_lines(in_force, responder, view, login) or questions.nothing_known(responder)
    policy = responder.policy
    return [
        *sections(undo_state.already(one, view, "", "contained").rstrip() for one in ended),
        *acts_on.field(to_choose, key, ended),
        *questions.policy_words(policy, responder.description if policy.is_undo else ""),
        *([] if ended else sections(before)),
        *review,
        *time_field(key, responder, request.undo_after_minutes),
        *questions.effect(responder, request),
        *(questions.limit(policy) if to_choose else []),
        *questions.notes(responder, view, is_choosing=bool(to_choose) and len(request.targets) == 1),
        *inputs.fields(form, key),
        *why_field(request, responder),
    ]


def _ended(in_force: Sequence[Measure | Action], responder: OfferedResponder) -> Sequence[Measure]:
    """What of this a responder undoes."""
    return [one for one in in_force if isinstance(one, Measure) and responder.policy.is_undo]


def is_shown(
    view: modals.View, request: RunRequest, responder: OfferedResponder, to_choose: Sequence[acts_on.Choice]
) -> bool:
    """Whether the modal has what somebody fills in or confirms before this run."""
    if not acts_on.is_shown(view, to_choose, inputs.key_of(responder)):
        return False
    blocks, declared = modals.labels(view), responder.parameters or ()
    if request.responder_id != responder.id:
        is_confirmed = questions.is_confirmed(responder.policy)
        return not (declared or is_confirmed or responder.is_timed or RESPONDER in blocks)
    return all(inputs.block_id(inputs.key_of(responder), parameter.name) in blocks for parameter in declared)


def deed(responder: OfferedResponder, request: RunRequest) -> str:
    """The title of what asks to run it, on so many targets: `Isolate Host (3)`."""
    number = sum(len(one.target) or 1 for one in request.targets)
    return names.in_view(names.title(responder), f" ({number})" if number > 1 else "")


def _modal(
    request: RunRequest,
    blocks: Sequence[Block],
    submit: str,
    responder: OfferedResponder | None = None,
    *,
    several: str = "",
) -> dict[str, Any]:
    """`several`: what one that is for several objects is called before it is known what runs on them."""
    title, callback_id = (several, ids.SEVERAL_VIEW) if several else (TITLE, ids.START_VIEW)
    title = deed(responder, request) if responder is not None else title
    if request.override_reason is not None:
        title = names.overriding(title)
    close = "" if submit else "Not now"  # *Close ...* closes alerts
    return modals.modal(title, blocks, callback_id=callback_id, submit=submit, metadata=request.metadata(), close=close)


def object_options(found: Iterable[Subject], clearance: int) -> list[dict[str, Any]]:
    """Entries of the menu of alerts: id and title, and the severity and first observable of each, or its kind."""
    views = [RedactedView(subject, clearance) for subject in found]
    kinds = [_kind(view.subject) for view in views]
    room = OPTION_LIMIT - len(" · ") - max(map(len, kinds), default=0)
    each, options = clip_apart([clean(runs.first_observables(view, 2)) for view in views], room), list[dict[str, Any]]()
    for view, kind, on in zip(views, kinds, each, strict=True):
        name = foreign_plain(f"{view.subject.id} · {view.title()}", OPTION_LIMIT)
        about = foreign_plain(" · ".join(filter(None, [kind, on])), OPTION_LIMIT)
        options.append({"text": plain(name), "value": view.subject.id, "description": plain(about)})
    return options


def _kind(subject: Subject) -> str:
    """`🟠 HIGH` of an alert; else `Case`, `Observable`."""
    is_alert, level = subject.kind == "alert", subject.severity
    return f"{SIGNS[level]} {SEVERITY_NAMES[level].upper()}" if is_alert else OBJECT_TYPES[subject.kind]


def _about(view: RedactedView, responder: OfferedResponder | None, who: str) -> list[Block]:
    """The object, and the menu of its responders."""
    subject = view.subject
    if not view.is_open:
        return [section(escape(notices.withheld_from(view.clearance, who)))]
    element = responder_menu("Choose, or type to search", ids.START_RESPONDER)
    if responder is not None:
        element["initial_option"] = responders.option(responder, responders.about_option(responder))
    # Another object gives another block id, with which Slack drops the old choice.
    menu = {**modals.input_block(f"responder:{subject.id}", "Responder", element), "dispatch_action": True}
    return [object_line(view), *sections(filter(None, [runs.closed_line(view)])), menu]
