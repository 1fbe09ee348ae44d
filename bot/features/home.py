"""The App Home, published when somebody opens it and after what they decide in it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.cards import access, approvals, home, notices, runs
from bot.cards.home import Home, HomeAlert, HomeRun
from bot.features import people, responses
from bot.features.base import Context, Entry, Feature
from bot.features.help import EXAMPLE_ID, help_lines
from bot.features.payload import view_of
from bot.outbox.links import card_link
from bot.redaction import Subject
from core.common.errors import ResponderBotError
from core.models import Action, Alert, Document, Person, Policy

DAY_MS = 86_400_000
MANY, SOME, FEW = "0-500", "0-50", f"0-{home.MAX_SHOWN}"
IDS_AT_ONCE = 200  # as many as core answers
AGAIN = "Open this page again to refresh it."


async def on_home_opened(context: Context) -> None:
    """Publish the Home of the person who opened it."""
    if context.payload.get("tab", "home") == "home":
        await publish(context)


async def publish(context: Context) -> None:
    """Publish this person's Home."""
    await context.services.slack.views_publish(user_id=context.user, view=await _view(context))


def is_home(context: Context) -> bool:
    """Whether the click was in the Home."""
    return view_of(context).get("type") == "home"


async def _view(context: Context) -> dict[str, Any]:
    person, now = context.person, context.services.clock_ms()
    if context.core_problem:
        return home.notice_home(f"{context.core_problem} {AGAIN}")
    if person is None:
        return await _unlinked(context)
    try:
        found = await _home(context, person, now)
        admin = await people.home_blocks(context)
    except ResponderBotError as error:
        return home.notice_home(notices.error(f"{notices.sentence(error)} {AGAIN}").text)
    from bot.features import COMMANDS  # not at import, since the registry imports this module

    lines = help_lines(person, context.services.command, found.example_id(EXAMPLE_ID), COMMANDS)
    button = await responses.private_buttons(
        context, "home", lambda b: home.home_view(found, person, lines, button=b, now_ms=now)
    )
    return home.home_view(found, person, lines, button=button, now_ms=now, admin=admin)


async def _unlinked(context: Context) -> dict[str, Any]:
    """The Home of somebody who isn't linked: they can ask for access, or have done so."""
    try:
        requests = await context.services.core.access_requests()
    except ResponderBotError as error:
        return home.notice_home(notices.error(f"{notices.sentence(error)} {AGAIN}").text)
    who = (context.team, context.user)
    own = next((r for r in requests if r.status == "pending" and (r.team, r.slack_user) == who), None)
    if own is not None:
        return home.notice_home(access.waiting(own))
    message = notices.unlinked(context.user, context.team)
    return home.notice_home(message.text, *message.blocks[1:])


async def _home(context: Context, person: Person, now_ms: int) -> Home:
    login = person.login
    mine, yesterday = {"createdBy": login}, {"_gte": {"endDate": now_ms - DAY_MS}}
    waiting, opened, failed, ended, alerts = await asyncio.gather(
        context.core.search_actions({"status": "Waiting"}, MANY),
        context.core.search_actions({"_and": [mine, _one_of("status", "Waiting", "InProgress")]}, SOME),
        context.core.search_actions({"_and": [mine, {"status": "Failure"}, yesterday]}, SOME),
        context.core.search_actions({"_and": [mine, _one_of("status", "Success", "Deleted")]}, FEW),
        _own_alerts(context, login),
    )
    ended = [*ended, *(action for action in failed if not runs.has_failed(action))]  # such as denied ones
    failed = [action for action in failed if runs.has_failed(action)]
    asked = [a for a in waiting if runs.awaits_approval(a) and a.created_by != login]
    parts = (asked if "manageAction" in person.permissions else [], opened, failed, ended)
    in_order = [runs.newest_first(part) for part in parts]
    found = await _Documents.of(context, [a for part in in_order for a in part])
    to_approve = [run for a in in_order[0] if approvals.may_decide(a, person, (run := found.run(a)).subject)]
    whole = [await _whole(context, run) for run in to_approve[: home.MAX_SHOWN]]
    shown = [[found.run(a) for a in part] for part in in_order[1:]]
    storms = [(storm.channel, storm.sentence()) for storm in context.services.outbox.storms()]
    running, failed_runs, recent = shown
    return Home([*whole, *to_approve[home.MAX_SHOWN :]], alerts, running, failed_runs, recent, storms)


def _one_of(field: str, *values: str) -> Mapping[str, Any]:
    return {"_in": {"_field": field, "_values": values}}


async def _own_alerts(context: Context, login: str) -> list[HomeAlert]:
    """The alerts that this person has taken and nobody has closed, newest first."""
    query = {"_and": [{"assignee": login}, _one_of("status", "New", "Updated")]}
    found, _ = await context.core.search("/api/alert/_search", query, range=SOME, sort=["-createdAt"])
    alerts = [Alert.model_validate(one) for one in found]
    return [HomeAlert(Subject.alert(alert), alert.date, _link(context, alert.id)) for alert in alerts]


def _link(context: Context, root_id: str) -> str:
    services = context.services
    return card_link(services.outbox.cards(root_id), services.clearance, services.workspace_url)


@dataclass(frozen=True)
class _Documents:
    """What actions ran on, as core shows it in one answer, or in a few where that is much."""

    context: Context
    subjects: Mapping[str, Subject]  # by action
    policies: Mapping[str, Policy]  # by responder
    titled: Mapping[str, Action]  # by id: the same with the titles of responder and inputs

    @staticmethod
    async def of(context: Context, actions: Sequence[Action]) -> "_Documents":
        wanted = list(dict.fromkeys(action.id for action in actions))
        documents: list[Document] = []
        while wanted:
            answer = await context.core.documents(wanted[:IDS_AT_ONCE])
            documents += answer.documents
            wanted = [*answer.left, *wanted[IDS_AT_ONCE:]]
        by_action = {action.id: document for document in documents for action in document.actions}
        found: dict[str, Subject] = {}
        policies: dict[str, Policy] = {}
        for action in actions:
            document = by_action.get(action.id)
            subject = Subject.in_document(document, action.object_id) if document else None
            found[action.id] = subject or Subject.unknown(action)
            policies.update(document.policies if document else {})
        titled = {action.id: action for document in documents for action in document.actions}
        return _Documents(context, found, policies, titled)

    def run(self, action: Action) -> HomeRun:
        """The action with what the Home shows beside it."""
        subject, policy = self.subjects[action.id], self.policies.get(action.responder_name)
        confirm, link = policy.confirm if policy else "", _link(self.context, subject.root_id)
        return HomeRun(runs.titled_as(action, self.titled.get(action.id)), subject, confirm, link)


async def _whole(context: Context, run: HomeRun) -> HomeRun:
    """With all inputs, since searches shorten long ones, and somebody decides by them."""
    whole = await context.core.action(run.action.id)
    return replace(run, action=runs.titled_as(whole, run.action))


FEATURE = Feature(events={"app_home_opened": Entry(on_home_opened, is_public=True, works_without_core=True)})
