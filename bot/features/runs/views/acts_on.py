"""What a run is to act on: the field that asks for it where several artifacts fit, and the words that name it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from bot.block_kit import ids, modals
from bot.block_kit.elements import MAX_OPTIONS
from bot.block_kit.subjects import by_ioc, target_data
from bot.block_kit.text import (
    OPTION_LIMIT,
    clean,
    clip_apart,
    clip_middle,
    code,
    foreign,
    foreign_plain,
    mrkdwn,
    plain,
    plain_name,
    sections,
)
from bot.clearance import RedactedView, artifact_title, refanged
from bot.features.runs.views import runs
from bot.features.runs.views.request import RunRequest
from bot.message import Block
from core.common.words import count, some_of
from core.models import MAX_TARGETS, Measure, OfferedResponder, OfferedTarget, RunTarget, TargetArtifact

NAME_LIMIT = OPTION_LIMIT - 2  # characters of a target between backticks
GOT_LIMIT, MOST_GOT = 120, 10  # characters of an observable that a run gets, and how many are named
LEFT_OUT = "An alert is left out if you choose nothing of it."
NOTHING_CHOSEN = "Choose what it should act on."


class Choice(NamedTuple):
    """An object on which several artifacts fit, with these."""

    view: RedactedView
    offered: OfferedTarget
    contained: Mapping[str, str] = MappingProxyType({})
    """Who contained it, by artifact."""


def needs_choice(target: RunTarget, responder: OfferedResponder) -> bool:
    """Whether several artifacts fit, and nobody has said yet which the run is to act on."""
    return responder.target is not None and responder.target.required and not target.target


def chosen(target: RunTarget, responder: OfferedResponder) -> Sequence[TargetArtifact]:
    """The artifacts that the run acts on as it is requested; empty where nobody knows."""
    fitting = responder.target.artifacts if responder.target is not None else []
    return [artifact for artifact in fitting if not target.target or artifact.id in target.target]


def by_object(targets: Sequence[RunTarget], responder: OfferedResponder) -> Mapping[str, Sequence[TargetArtifact]]:
    """The same by object."""
    return {target.object_id: chosen(target, responder) for target in targets}


def lines(target: RunTarget, responder: OfferedResponder, view: RedactedView) -> list[str]:
    """The targets of a run on one object, as it is asked for; where nobody knows them, what it gets; mrkdwn.

    What only reads, such as one that closes, acts on none of it.
    """
    if responder.target is None:
        hosts = responder.policy.sends_to
        seen = by_ioc(view.artifacts()) if view.subject.kind == "alert" and hosts != [] else []
        names = [foreign(clip_middle(view.text(artifact_title(one)), GOT_LIMIT), GOT_LIMIT) for one in seen]
        hidden = f" and {view.hidden_count()} that you may not see" if view.hidden_count() else ""
        acts = ", and may act on any" if hosts is None else ""
        all_of = "only observable" if len(seen) == 1 else f"{len(seen)} observables{hidden}{acts}"
        return [f"It gets the alert's {all_of}: {some_of(names, MOST_GOT)}."] if names else []
    named = [] if needs_choice(target, responder) else runs.target_lines(chosen(target, responder), view)
    return named if len(named) == 1 else [f"• {line}" for line in named]


# --- the field ------------------------------------------------------------------------------------------------------


def field(
    choices: Sequence[Choice], key: str, ended: Sequence[Measure] = (), *, has_others: bool = False
) -> list[Block]:
    """Asks what to act on, with nothing chosen; for several objects with the artifacts of each.

    First what is in force that the run may end. With `has_others`, which need no choice, nothing needs to be chosen.
    """
    if not choices:
        return []
    by = {(target.kind, target.data): one.created_by for one in ended for target in one.target or ()}
    choices = [_marked(one, by) for one in choices]
    menu = _menu_of_several(choices) if len(choices) > 1 else _menu(choices[0])
    element = {"action_id": ids.numbered(ids.VALUE, "target"), **menu}
    whole = [line for one in choices for line in _whole(one.offered.artifacts[:MAX_OPTIONS], one.view)]
    left = _unlisted(choices, menu)
    hint = f"{count(left, 'other fits', 'others fit')}, not listed here: see the menu of each." if left else ""
    hint = f"{LEFT_OUT} {hint}".rstrip() if len(choices) > 1 or has_others else hint
    whole, block = ["*Cut below, here in full*", *whole] if whole else [], _block(choices, key)
    asks = modals.input_block(block, "What should it act on?", element, hint=hint, optional=has_others)
    return [*sections(whole), asks]


def _unlisted(choices: Sequence[Choice], menu: Mapping[str, Any]) -> int:
    """How many fit that the menu has no room for; of one object not what is protected, which is named below."""
    listed = sum(len(group["options"]) for group in menu.get("option_groups", [menu]))
    named = len(choices[0].offered.artifacts) - len(_free(choices[0])) if len(choices) == 1 else 0
    return sum(one.offered.total for one in choices) - listed - named


def _free(choice: Choice) -> Sequence[TargetArtifact]:
    """What of it isn't protected, or all of it if everything is."""
    fitting = choice.offered.artifacts
    return [one for one in fitting if one.id not in choice.offered.protected] or fitting


def _menu(choice: Choice) -> dict[str, Any]:
    offered = _free(choice)
    if len(offered) <= modals.MAX_CHECKBOXES:
        return {"type": "checkboxes", "options": _options(offered, choice, is_code=True)}
    options = _options(offered[:MAX_OPTIONS], choice)
    return {"type": "multi_static_select", "placeholder": plain("Choose"), "options": options}


def _menu_of_several(choices: Sequence[Choice]) -> dict[str, Any]:
    each = max(1, MAX_OPTIONS // len(choices))
    groups = [
        {
            "label": plain(foreign_plain(f"{one.view.subject.id} · {one.view.title()}", OPTION_LIMIT)),
            "options": _options(one.offered.artifacts[:each], one),
        }
        for one in choices
    ]
    return {"type": "multi_static_select", "placeholder": plain("Choose for each alert"), "option_groups": groups}


def _marked(choice: Choice, by: Mapping[Any, str]) -> Choice:
    artifacts = choice.offered.artifacts
    contained = {one.id: by[one.kind, one.data] for one in artifacts if (one.kind, one.data) in by}
    first = sorted(artifacts, key=lambda one: one.id not in contained)
    return choice._replace(offered=choice.offered.model_copy(update={"artifacts": first}), contained=contained)


def _options(artifacts: Sequence[TargetArtifact], choice: Choice, *, is_code: bool = False) -> list[dict[str, Any]]:
    """What can be chosen, each with what the alert says of it; no two look the same."""
    texts = clip_apart([clean(target_data(artifact, choice.view)) for artifact in artifacts], NAME_LIMIT)
    return [
        {
            "text": mrkdwn(code(text, OPTION_LIMIT)) if is_code else plain(text or "(no name)"),
            "description": plain(foreign_plain(_about(artifact, choice), OPTION_LIMIT)),
            "value": artifact.id,
        }
        for artifact, text in zip(artifacts, texts, strict=True)
    ]


def _about(artifact: TargetArtifact, choice: Choice) -> str:
    """What it is, who contained it, whether the title names it, such as a victim, and what the alert says of it."""
    view, named = choice.view, rf"(?<![\w.-]){re.escape(artifact.data)}(?!\.?[\w-])"
    protected = "protected, needs an administrator" if artifact.id in choice.offered.protected else ""
    is_open = choice.offered.open_runs.get(artifact.id, "").partition(" since")[0]  # "already waiting for approval"
    by = choice.contained.get(artifact.id)
    contained = f"contained by {plain_name(by)}" if by else "not known to be contained" if choice.contained else ""
    in_title = "named in the title" if re.search(named, refanged(view.title()), re.IGNORECASE) else ""
    return " · ".join(
        filter(None, [artifact.data_type, contained, protected, is_open, in_title, view.text(artifact.message or "")])
    )


def _whole(artifacts: Sequence[TargetArtifact], view: RedactedView) -> list[str]:
    """The names that are too long for an option, whole, with the alert or case that has them."""
    long = [artifact for artifact in artifacts if len(target_data(artifact, view)) > NAME_LIMIT]
    return [f"• {line} ({view.subject.id})" for line in runs.target_lines(long, view)]


def is_shown(modal: modals.View, choices: Sequence[Choice], key: str) -> bool:
    """Whether the modal has the field, if it is needed."""
    return not choices or _block(choices, key) in modals.labels(modal)


def submitted(
    modal: modals.View, request: RunRequest, choices: Sequence[Choice], key: str
) -> tuple[RunRequest, dict[str, str]]:
    """The request with what was chosen for each object, without where nothing was; and what is wrong by block id.

    First what the form names: where a limit is used up, core refuses the last.
    """
    if not choices:
        return request, {}
    block = _block(choices, key)
    picked = set(modals.chosen(modal, block))
    by_object = {
        one.view.subject.id: [artifact.id for artifact in one.offered.artifacts if artifact.id in picked]
        for one in choices
    }
    wanted = sorted(request.targets, key=lambda one: one.object_id in by_object)
    if wanted[0].object_id in by_object and not any(by_object.values()):
        return request, {block: NOTHING_CHOSEN}
    each_alone = request.is_several
    request = replace(request, targets=tuple(one for one in wanted if by_object.get(one.object_id, True)))
    request = with_artifacts(request, by_object, each_alone=each_alone)
    too_many = len(request.targets) > MAX_TARGETS
    return request, {block: f"At most {MAX_TARGETS} at once, not {len(request.targets)}."} if too_many else {}


def with_artifacts(request: RunRequest, by_object: Mapping[str, list[str]], *, each_alone: bool) -> RunRequest:
    """The request with the ids of the artifacts that runs on these objects are to act on: one run, or one on each."""
    targets = list[RunTarget]()
    for target in request.targets:
        chosen = by_object.get(target.object_id, target.target)
        of_runs = [[one] for one in chosen] if each_alone and chosen else [chosen]
        targets += [target.model_copy(update={"target": of_run}) for of_run in of_runs]
    return replace(request, targets=tuple(targets))


def _block(choices: Sequence[Choice], key: str) -> str:
    """The block id: another object or responder gives another, with which Slack drops what was chosen."""
    return f"target:{choices[0].view.subject.id if len(choices) == 1 else 'several'}:{key}"
