"""The App Home, published when somebody opens it and after what they decide in it."""

import asyncio
from collections import Counter
from typing import Any

from bot.block_kit import notices
from bot.block_kit.text import slack_date
from bot.clearance import Subject
from bot.features import responses, subjects
from bot.features.alert_groups.views import storm_sentence
from bot.features.base import Context, Entry, Feature
from bot.features.home import active
from bot.features.home.found_runs import MANY, FoundRuns
from bot.features.home.views import home
from bot.features.home.views.active import MAX_IN_HOME, in_home
from bot.features.home.views.home import Home, HomeAlert, HomeAlerts
from bot.features.runs.views import runs, undo_state
from bot.message import ButtonIds
from bot.outbox.replicas import summary
from core.common.clock import DAY_MS
from core.common.errors import ResponderBotError
from core.models import OpenAlert, Person

AGAIN = "Open this page again to refresh it."


async def on_home_opened(context: Context) -> None:
    """Publish the Home of the person who opened it."""
    if context.payload.get("tab", "home") == "home":
        await publish(context)


async def publish(context: Context) -> None:
    """Publish this person's Home."""
    await context.services.slack.views_publish(user_id=context.user, view=await _view(context))


async def _view(context: Context) -> dict[str, Any]:
    person = context.linked
    if context.core_problem:
        return home.notice_home(f"{context.core_problem} {AGAIN}")
    if person is None:
        return home.notice_home(notices.unlinked(context.user, context.team).text)
    try:
        shown = await _home(context, person)
        in_force = await context.core.measures()
        of_measures = await active.runs_of(context, in_force[:MAX_IN_HOME])
    except ResponderBotError as error:
        return home.notice_home(notices.error(f"{notices.sentence(error)} {AGAIN}").text)

    def view(button: ButtonIds) -> dict[str, Any]:
        contained = in_home(of_measures, person, total=len(in_force), button=button)
        return home.home_view(shown, person, button=button, in_force=contained)

    return await responses.with_buttons(context, "home", view)


async def _home(context: Context, person: Person) -> Home:
    core, login = context.core, person.login
    waiting, opened, failed, ended, alerts, unassigned = await asyncio.gather(
        core.newest_actions("waiting", limit=MANY),
        core.newest_actions("open", by=login, limit=MANY),
        core.newest_actions("failed", by=login, since=context.services.clock_ms() - DAY_MS, limit=MANY),
        core.newest_actions("ended", by=login, limit=MANY),
        _own(context, login),
        _open_alerts(context, "", home.MAX_UNASSIGNED),
    )
    ended = [a for a in ended if runs.state_of(a) not in runs.WORTH_REPEATING and not undo_state.is_in_force(a)]
    lines = list(dict.fromkeys(action.bulk or action.id for action in ended))[: home.MAX_SHOWN]
    ended = [action for action in ended if (action.bulk or action.id) in lines]
    parts = (waiting if "manageAction" in person.permissions else [], opened, failed, ended)
    in_order = [runs.newest_first(part) for part in parts]
    runs_found = await FoundRuns.of(context, [a for part in in_order for a in part])
    to_approve = home.by_bulk(runs_found.to_decide(person, in_order[0]))
    shown = [home.by_bulk([runs_found.run(a) for a in part]) for part in in_order[1:]]
    found_storms = await context.services.outbox.storms()
    storms = [(storm.channel, storm_sentence(storm, slack_date(storm.since))) for storm in found_storms]
    running, failed_runs, recent = shown
    replicas = await context.services.outbox.replicas.all()
    which = f"Of the bots, {summary(replicas)}." if len(replicas) > 1 else ""
    return Home(to_approve, alerts, unassigned, running, failed_runs, recent, storms, which)


async def _own(context: Context, login: str) -> HomeAlerts:
    """The open alerts and cases of this person, the most severe first."""
    alerts, cases = await asyncio.gather(_open_alerts(context, login, home.MAX_SHOWN), context.core.open_cases(login))
    links = await subjects.card_links(context, [case.id for case in cases])
    of_cases = [HomeAlert(Subject.case(case), case.created_at, links[case.id]) for case in cases]
    shown = sorted([*alerts.shown, *of_cases], key=lambda one: one.subject.severity, reverse=True)
    return HomeAlerts(shown[: home.MAX_SHOWN], alerts.total + len(cases))


async def _open_alerts(context: Context, assignee: str, most: int) -> HomeAlerts:
    """The first lines of the open alerts of somebody, or with "" of nobody, that this person may see.

    The most severe come first; those of a group share a line.
    """
    alerts = await context.core.open_alerts(assignee)
    groups = await context.services.outbox.alert_groups.groups_of([alert.id for alert in alerts])
    lines = dict[str, list[OpenAlert]]()
    for alert in alerts:
        lines.setdefault(groups.get(alert.id, alert.id), []).append(alert)
    firsts = {together[0].id: key for key, together in list(lines.items())[:most]}
    links, read = await subjects.card_links(context, list(firsts)), dict[str, HomeAlert]()
    for document in await subjects.documents(context.core, firsts):
        subject = Subject.in_document(document, document.id)
        if document.alert is not None and subject is not None:
            numbers = Counter(alert.severity for alert in lines[firsts[document.id]])
            counts = tuple(numbers[n] for n in range(1, 5))
            read[document.id] = HomeAlert(
                subject, document.alert.date, links[document.id], bool(assignee), firsts[document.id], counts
            )
    return HomeAlerts([read[alert_id] for alert_id in firsts if alert_id in read], len(alerts))


FEATURE = Feature(events={"app_home_opened": Entry(on_home_opened, is_public=True, works_without_core=True)})
