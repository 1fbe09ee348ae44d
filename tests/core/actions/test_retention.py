"""What is closed and old goes with all that belongs to it; what is open, in force or waits stays."""

import asyncio
import base64
import json
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.cli import main
from core.app import Core
from core.common.clock import DAY_MS, now_ms
from core.common.errors import ResponderBotError
from core.common.settings_file import RetentionSection
from core.engines.base import Report, Responder
from core.models import (
    AlertInput,
    AlertUpdate,
    ArtifactsInput,
    BulkInput,
    CaseInput,
    CaseUpdate,
    CommentInput,
    LogInput,
    RunInput,
    TaskInput,
    UndoInput,
)
from core.records.alerts import Alerts
from core.records.cases import Cases
from core.records.comments import Comments
from core.retention.pruning import Retention, longest_rule_ms
from core.settings import ResponderSection, load
from core.store.database.backup import copy
from core.store.database.opening import open_database
from tests import stores
from tests.clock import SetClock
from tests.core.actions.harness import ANNA, BEN, LEAD, Harness, another_core, next_run, open_harness
from tests.core.core_process import alert_in, core_process, run_body, setup_in, until
from tests.core.object_api import ALERT
from tests.core.running import running_core, settings_in
from tests.core.scripted_engine import NOTIFY, ScriptedEngine

PLAIN, BLOCK, TIMED, GUARDED, RELEASE = "Plain_1_0", "Block_1_0", "Timed_1_0", "Guarded_1_0", "Release_1_0"
POLICIES = {
    BLOCK: ResponderSection(undo=RELEASE),
    TIMED: ResponderSection(undo=RELEASE, undo_after_minutes=60),
    GUARDED: ResponderSection(approval=1, approval_expires_minutes=525_600),
}
DONE, FAILED = Report(True, message="done", full={"found": "x" * 100}), Report(False, message="no answer")
DAYS = 90
ACTION = "/api/connector/engine/action"


def engine() -> ScriptedEngine:
    return ScriptedEngine(
        offered=[
            Responder(id=f"r-{name}", name=name, version="1.0", description="", data_types=NOTIFY.data_types)
            for name in (PLAIN, BLOCK, TIMED, GUARDED, RELEASE)
        ]
    )


KINDS = ("alert", "case", "action", "comment", "case_task", "case_task_log", "case_artifact")


@dataclass
class Soc:
    """A core's parts, and what people do with them."""

    parts: Harness
    alerts: Alerts
    cases: Cases
    comments: Comments
    made: int = 0

    @property
    def clock(self) -> SetClock:
        return self.parts.clock

    def retention(self, **days: int) -> Retention:
        section = RetentionSection(**{"alert_days": DAYS, **days})
        return Retention(self.parts.database, self.clock, section, pause_s=0)

    def later(self, days: float) -> None:
        self.clock.now_ms += int(days * DAY_MS)

    async def alert(self, *data: str, file: str = "") -> str:
        self.made += 1
        fields = {
            "type": "t",
            "source": "s",
            "sourceRef": f"a{self.made}",
            "title": "A",
            "description": "words",
            "tags": ["tag"],
        }
        artifacts: list[Mapping[str, Any]] = [{"dataType": "ip", "data": one} for one in data]
        if file:
            content = base64.b64encode(file.encode()).decode()
            artifacts.append({"dataType": "file", "data": f"f.txt;text/plain;{content}"})
        return (await self.alerts.create(ANNA, AlertInput.model_validate({**fields, "artifacts": artifacts}))).id

    async def closed(self, *data: str, file: str = "") -> str:
        alert = await self.alert(*data, file=file)
        await self.alerts.mark_read(ANNA, alert)
        return alert

    async def started(self, responder: str, object_id: str, kind: str = "alert") -> str:
        request = RunInput.model_validate({"responderId": responder, "objectType": kind, "objectId": object_id})
        return (await self.parts.actions.start(ANNA, request)).action.id

    async def ran(self, responder: str, object_id: str, kind: str = "alert", report: Report = DONE) -> str:
        action = await self.started(responder, object_id, kind)
        (await next_run(self.parts.engine)).finish(report)
        return (await self.parts.ended(action)).id

    async def finish(self, report: Report) -> None:
        """Let the run end that began first."""
        run = await next_run(self.parts.engine)
        run.finish(report)
        await self.parts.ended(run.job.action_id)

    def rows(self, table: str) -> int:
        return int(stores.rows(self.parts.location, f'SELECT count(*) FROM "{table}"')[0][0])  # noqa: S608

    def docs(self) -> dict[str, dict[str, Any]]:
        """What is stored, by kind and id."""
        sql = "SELECT 'action', doc FROM action UNION ALL SELECT kind, doc FROM object WHERE kind <> 'file'"
        stored: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        for kind, text in stores.rows(self.parts.location, sql):
            if kind in stored:
                doc = json.loads(text)
                stored[kind][doc["id"]] = doc
        return stored


@asynccontextmanager
async def soc_in(folder: Path, **policies: ResponderSection) -> AsyncIterator[Soc]:
    """A SOC whose only alert is open."""
    async with open_harness(folder, engine=engine(), policies={**POLICIES, **policies}) as parts:
        database, clock = parts.database, parts.clock
        own = Alerts(database, clock, "soc"), Cases(database, clock), Comments(database, clock)
        yield Soc(parts, *own)


@pytest.fixture
async def soc(tmp_path: Path) -> AsyncIterator[Soc]:
    async with soc_in(tmp_path) as opened:
        yield opened


OF_ROOTS = ("object", "object_text", "alert_tag", "alert_artifact", "file_reference", "dropped_file")
OF_ACTIONS = ("action", "action_target", "bulk")


async def test_an_alert_goes_with_all_that_belongs_to_it(soc: Soc) -> None:
    before = {table: soc.rows(table) for table in (*OF_ROOTS, *OF_ACTIONS)}
    alert = await soc.closed("198.51.100.7", file="evidence")
    await soc.comments.add(ANNA, alert, CommentInput(message="seen"), kind="alert")
    await soc.ran(PLAIN, alert)
    await soc.ran(PLAIN, alert, report=FAILED)
    soc.later(DAYS)
    assert await soc.retention().prune() == Counter()  # not a moment too early
    soc.later(0.001)
    expected = Counter(alert=1, comment=1, action=2, file=1)
    assert await soc.retention().preview() == expected
    assert await soc.retention().prune() == expected
    assert {table: soc.rows(table) for table in (*OF_ROOTS, *OF_ACTIONS)} == before
    assert await soc.retention().preview() == Counter()
    last = (await soc.parts.feed.page(0, 0)).events[-1]
    assert (last.type, last.object_type, last.object_id, last.root_id) == ("alert.deleted", "Alert", alert, alert)


async def test_a_case_goes_with_its_alerts_and_all_parts(soc: Soc) -> None:
    before = {table: soc.rows(table) for table in (*OF_ROOTS, *OF_ACTIONS)}
    one, two = await soc.alert("198.51.100.7", file="evidence"), await soc.alert("198.51.100.7")
    case = await soc.alerts.create_case(ANNA, one)
    await soc.alerts.merge_into(ANNA, [two], case.id)
    task = await soc.cases.add_task(ANNA, case.id, TaskInput(title="t"))
    log = await soc.cases.add_log(ANNA, task.id, LogInput(message="l"))
    await soc.comments.add(ANNA, case.id, CommentInput(message="seen"), kind="case")
    await soc.ran(PLAIN, log.id, "case_task_log")
    await soc.ran(PLAIN, one)
    await soc.cases.update_case(ANNA, case.id, CaseUpdate(status="Resolved"))
    soc.later(DAYS + 1)
    expected = Counter(case=1, alert=2, case_task=1, case_task_log=1, case_artifact=2, comment=1, action=2, file=1)
    assert await soc.retention().preview() == expected
    assert await soc.retention().prune() == expected
    assert {table: soc.rows(table) for table in (*OF_ROOTS, *OF_ACTIONS)} == before
    events = (await soc.parts.feed.page(0, 0)).events
    assert [(event.type, event.object_id) for event in events[-3:]] == [
        ("alert.deleted", one),
        ("alert.deleted", two),
        ("case.deleted", case.id),
    ]


async def test_a_bulk_goes_with_the_last_of_its_actions_or_by_its_age_without_any(soc: Soc) -> None:
    one, two = await soc.closed(), await soc.closed()
    bulks = soc.parts.bulks
    targets = [{"objectType": "alert", "objectId": alert} for alert in (one, two)]
    wanted = {"responderId": PLAIN, "targets": targets}
    bulk = (await bulks.start(ANNA, BulkInput.model_validate(wanted))).id
    for _ in targets:
        await soc.finish(DONE)
    nothing = {"responderId": PLAIN, "targets": [{"objectType": "alert", "objectId": "~999"}]}
    with suppress(ResponderBotError):
        await bulks.start(ANNA, BulkInput.model_validate(nothing))
    refused = soc.rows("bulk") - 1
    await soc.alerts.mark_unread(ANNA, one)
    soc.later(DAYS + 1)
    assert await soc.retention().prune() == Counter(alert=1, action=1) + Counter(bulk=refused)
    assert [target.action_status for target in (await bulks.get(bulk)).targets] == ["Success", None]
    await soc.alerts.mark_read(ANNA, one)
    soc.later(DAYS + 1)
    assert await soc.retention().prune() == Counter(alert=1, action=1, bulk=1)
    assert soc.rows("bulk") == 0


async def test_a_file_stays_while_an_alert_has_it(soc: Soc) -> None:
    old, shared = await soc.closed(file="shared"), await soc.alert(file="shared")
    soc.later(DAYS + 1)
    assert await soc.retention().preview() == Counter(alert=1)
    assert await soc.retention().prune() == Counter(alert=1)
    assert soc.rows("file_reference") == 1
    await soc.alerts.update(ANNA, shared, AlertUpdate(artifacts=[]))
    assert await soc.retention(alert_days=0).preview() == Counter(file=1)
    assert await soc.retention(alert_days=0).prune() == Counter(file=1)
    assert old not in soc.docs()["alert"]
    again = await soc.alert(file="shared")
    await soc.alerts.update(ANNA, again, AlertUpdate(artifacts=[]))
    await soc.alerts.add_artifacts(ANNA, shared, ArtifactsInput(data_type="file", data=["f.txt;text/plain;c2hhcmVk"]))
    assert await soc.retention().prune() == Counter()  # dropped by one, taken up by another
    assert soc.rows("file_reference") == 1


async def test_the_days_count_from_the_end_of_a_run(soc: Soc) -> None:
    """It may have waited for approval longer than they are."""
    alert = await soc.closed()
    action = await soc.started(GUARDED, alert)
    soc.later(DAYS + 1)
    await soc.parts.actions.decide(BEN, action, "approve")
    await soc.finish(DONE)
    assert await soc.retention().preview() == Counter()
    assert await soc.retention().prune() == Counter()
    soc.later(DAYS + 0.001)
    assert await soc.retention().prune() == Counter(alert=1, action=1)


async def test_a_report_goes_and_its_sentence_stays(soc: Soc) -> None:
    alert, open_alert = await soc.closed(), await soc.alert()
    action, other = await soc.ran(PLAIN, alert), await soc.ran(PLAIN, open_alert)
    before = soc.docs()["action"]
    soc.later(31)
    retention = soc.retention(alert_days=0, report_days=30)
    assert await retention.preview() == Counter(report=1)
    assert await retention.prune() == Counter(report=1)
    after = soc.docs()["action"]
    report = json.loads(after[action].pop("report"))
    assert (report["message"], report["full"], report["success"]) == ("done", {"removed": True}, True)
    assert after[action] == {key: value for key, value in before[action].items() if key != "report"}
    assert after[other] == before[other]
    assert await retention.prune() == Counter()
    await soc.alerts.mark_read(ANNA, open_alert)  # by now it is closed
    assert await retention.prune() == Counter(report=1)


async def test_what_counts_for_a_rate_stays_as_long(soc: Soc) -> None:
    sections = [ResponderSection(rate=("5/1h",), rate_per_target=("2/200d",)), ResponderSection(rate=("5/1h",))]
    assert longest_rule_ms(sections) == 200 * DAY_MS
    assert longest_rule_ms([]) == 0
    await soc.closed()
    soc.later(199)
    section = RetentionSection(alert_days=DAYS)
    retention = Retention(soc.parts.database, soc.clock, section, rules_ms=longest_rule_ms(sections), pause_s=0)
    assert await retention.prune() == Counter()
    soc.later(2)
    assert await retention.prune() == Counter(alert=1)


async def test_what_is_in_force_stays_until_it_is_undone(soc: Soc) -> None:
    """Also without an end of its own: the host is still isolated, and the alert is where somebody can release it."""
    alert = await soc.closed()
    action = await soc.ran(BLOCK, alert)
    soc.later(DAYS + 1)
    assert await soc.retention(report_days=1).preview() == Counter()
    assert await soc.retention(report_days=1).prune() == Counter()
    await soc.parts.undos.undo(BEN, action, UndoInput())
    await soc.finish(DONE)
    assert await soc.retention().prune() == Counter()  # the undo is a run of today
    soc.later(DAYS + 1)
    assert await soc.retention().prune() == Counter(alert=1, action=2)


async def test_a_case_stays_as_long_as_any_of_its_alerts(soc: Soc) -> None:
    one, two = await soc.alert(), await soc.alert()
    case = await soc.alerts.create_case(ANNA, one)
    await soc.alerts.merge_into(ANNA, [two], case.id)
    await soc.cases.update_case(ANNA, case.id, CaseUpdate(status="Resolved"))
    soc.later(DAYS - 1)
    await soc.alerts.update(ANNA, two, AlertUpdate(title="changed"))
    soc.later(2)
    assert await soc.retention().prune() == Counter()
    soc.later(DAYS)
    await soc.alerts.mark_unread(ANNA, one)
    assert await soc.retention().prune() == Counter()
    await soc.alerts.mark_read(ANNA, one)
    soc.later(DAYS - 1)
    await soc.ran(PLAIN, one)
    soc.later(2)
    assert await soc.retention().prune() == Counter()
    soc.later(DAYS)
    assert await soc.retention().prune() == Counter(case=1, alert=2, action=1)


async def test_it_stops_at_once_when_a_case_is_opened_between_two_steps(soc: Soc) -> None:
    case = await soc.cases.create(ANNA, CaseInput(title="c", description="d"))
    for number in range(20):
        await soc.cases.add_task(ANNA, case.id, TaskInput(title=f"t{number}"))
    await soc.cases.update_case(ANNA, case.id, CaseUpdate(status="Resolved"))
    soc.later(DAYS + 1)
    section = RetentionSection(alert_days=DAYS)
    slow = Retention(soc.parts.database, soc.clock, section, step_s=0, pause_s=0)  # one row in each step
    pruning = asyncio.create_task(slow.prune())
    while slow.counts["case_task"] < 5:  # noqa: ASYNC110  # each turn of the loop may end a step
        await asyncio.sleep(0)
    await soc.cases.update_case(ANNA, case.id, CaseUpdate(status="Open"))
    await pruning
    left = soc.rows("object") - 1
    assert slow.counts == Counter(case_task=21 - left)
    assert case.id in soc.docs()["case"]


async def test_two_cores_delete_nothing_twice(soc: Soc) -> None:
    alerts = [await soc.closed() for _ in range(30)]
    soc.later(DAYS + 1)
    async with another_core(soc.parts, engine()) as other:
        section = RetentionSection(alert_days=DAYS)
        cores = [Retention(one.database, soc.clock, section, step_s=0, pause_s=0) for one in (soc.parts, other)]
        found = await asyncio.gather(*(core.prune() for core in cores))
    assert sum(found, Counter()) == Counter(alert=30)
    deleted = [event.object_id for event in (await soc.parts.feed.page(0, 0)).events if event.type == "alert.deleted"]
    assert deleted == alerts


async def test_a_key_goes_after_a_day(soc: Soc) -> None:
    request = RunInput.model_validate({"responderId": PLAIN, "objectType": "alert", "objectId": await soc.alert()})
    await soc.parts.actions.start(ANNA, request, key="first")
    soc.later(0.9)
    await soc.parts.actions.start(ANNA, request, key="second")
    soc.later(0.7)
    await soc.retention().prune()
    assert stores.rows(soc.parts.location, "SELECT key FROM idempotency") == [("second",)]


@pytest.mark.sqlite
async def test_sqlite_gives_its_space_back(soc: Soc) -> None:
    for _ in range(40):
        await soc.closed(file="x" * 50_000 + str(soc.made))
    pages = int(stores.rows(soc.parts.location, "PRAGMA page_count")[0][0])
    soc.later(DAYS + 1)
    assert (await soc.retention().prune())["file"] == 40
    assert stores.rows(soc.parts.location, "PRAGMA freelist_count") == [(0,)]
    assert int(stores.rows(soc.parts.location, "PRAGMA page_count")[0][0]) < pages / 2


@pytest.mark.sqlite
async def test_sqlite_gives_the_space_of_reports_back(soc: Soc) -> None:
    alert = await soc.closed()
    for _ in range(60):
        await soc.ran(PLAIN, alert, report=Report(True, message="done", full={"found": "x" * 5_000}))
    pages = int(stores.rows(soc.parts.location, "PRAGMA page_count")[0][0])
    soc.later(DAYS + 1)
    assert (await soc.retention(alert_days=0, report_days=DAYS).prune())["report"] == 60
    assert int(stores.rows(soc.parts.location, "PRAGMA page_count")[0][0]) < pages - 15


async def test_what_is_closed_is_told_by_the_id_of_any_part(soc: Soc) -> None:
    open_alert, alone, in_case = soc.parts.alert_id, await soc.closed("198.51.100.7"), await soc.alert()
    action, artifact = await soc.ran(PLAIN, alone), soc.docs()["alert"][alone]["artifacts"][0]["id"]
    case = await soc.alerts.create_case(ANNA, in_case)
    task = await soc.cases.add_task(ANNA, case.id, TaskInput(title="t"))
    soc.later(1)
    await soc.cases.update_case(ANNA, case.id, CaseUpdate(status="Resolved"))
    before, now = soc.clock.now_ms - DAY_MS, soc.clock.now_ms
    asked = [open_alert, alone, action, artifact, in_case, case.id, task.id, "~999"]
    found = await soc.retention().closed(asked)
    assert found.closed_at == {
        **dict.fromkeys((alone, action, artifact), before),
        **dict.fromkeys((in_case, case.id, task.id), now),
    }
    assert found.missing == ["~999"]
    await soc.cases.update_case(ANNA, case.id, CaseUpdate(status="Open"))
    assert list((await soc.retention().closed(asked)).closed_at) == [alone, action, artifact]
    for wrong in ([], ["12"], [f"~{number}" for number in range(201)]):
        with pytest.raises(ResponderBotError, match="ids must be 1 to 200 ids"):
            await soc.retention().closed(wrong)


# --- whatever people do ---------------------------------------------------------------------------------------------

DEEDS = (
    *("alert", "alert", "read", "read", "unread", "case", "merge", "resolve", "resolve", "reopen", "comment", "task"),
    *(PLAIN, BLOCK, TIMED, GUARDED),
    *("finish", "finish", "fail", "approve", "undo", "due", "prune", "prune"),
)
days = st.integers(0, 2 * DAYS)


@pytest.mark.hypothesis
@given(st.lists(st.tuples(st.sampled_from(DEEDS), st.integers(0, 5), days), min_size=15, max_size=30))
def test_nothing_open_in_force_or_waiting_ever_goes(deeds: Sequence[tuple[str, int, int]]) -> None:
    async def check() -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with soc_in(Path(folder)) as soc:
                for what, which, later in deeds:
                    with suppress(ResponderBotError):  # such as a case that is in the way
                        await deed(soc, what, which)
                    soc.later(later)
                await deed(soc, "prune", 0)

    asyncio.run(check())


async def deed(soc: Soc, what: str, which: int) -> None:
    """What somebody does, with one of the alerts, cases or runs."""
    stored = soc.docs()
    of_alerts, of_cases, of_actions = (list(stored[kind]) for kind in ("alert", "case", "action"))
    alert = of_alerts[which % len(of_alerts)] if of_alerts else "~0"
    case = of_cases[which % len(of_cases)] if of_cases else "~0"
    action = of_actions[which % len(of_actions)] if of_actions else "~0"
    root, kind = (case, "case") if which % 2 else (alert, "alert")
    match what:
        case "alert":
            await soc.alert("198.51.100.7", file=f"f{which}")
        case "read":
            await soc.alerts.mark_read(ANNA, alert)
        case "unread":
            await soc.alerts.mark_unread(ANNA, alert)
        case "case":
            await soc.alerts.create_case(ANNA, alert)
        case "merge":
            await soc.alerts.merge_into(ANNA, [alert], case)
        case "resolve" | "reopen":
            status: Any = "Resolved" if what == "resolve" else "Open"
            await soc.cases.update_case(ANNA, case, CaseUpdate(status=status))
        case "comment":
            await soc.comments.add(ANNA, root, CommentInput(message="m"), kind=kind)
        case "task":
            await soc.cases.add_task(ANNA, case, TaskInput(title="t"))
        case "finish" | "fail":
            if not soc.parts.engine.taken.empty():
                await soc.finish(DONE if what == "finish" else FAILED)
        case "approve":
            await soc.parts.actions.decide(BEN, action, "approve")
        case "undo":
            await soc.parts.undos.undo(BEN, action, UndoInput())
        case "due":
            await soc.parts.due.look()
        case "prune":
            await check_prune(soc)
        case _:
            await soc.started(what, root, kind)


async def check_prune(soc: Soc) -> None:
    """What goes is exactly what may go, and that is what was foretold."""
    await soc.parts.due.look()  # ends requests for approval that have expired
    before = soc.docs()
    due = due_roots(before, soc.clock.now_ms - DAYS * DAY_MS)
    foretold = await soc.retention().preview()
    assert await soc.retention().prune() == foretold
    after = soc.docs()
    for kind in ("alert", "case"):
        assert before[kind].keys() - after[kind].keys() == {root for root in due if root in before[kind]}
    kept = {root for root in (*before["alert"], *before["case"]) if root not in due}
    assert all(action["id"] in after["action"] for action in before["action"].values() if action["objectId"] in kept)
    assert all(action["objectId"] in kept for action in after["action"].values())
    assert all(
        after[kind][number] == doc
        for kind in after
        for number, doc in before[kind].items()
        if number in after[kind] and doc.get("status") not in ("Waiting", "InProgress")  # may begin meanwhile
    )
    of_kept = {
        file["id"] for one in after["alert"].values() for part in one["artifacts"] if (file := part.get("attachment"))
    }
    of_kept |= {file["id"] for part in after["case_artifact"].values() if (file := part.get("attachment"))}
    sql = "SELECT unique_key FROM object WHERE kind = 'file'"
    assert {row[0] for row in stores.rows(soc.parts.location, sql)} == of_kept


def due_roots(stored: Mapping[str, Mapping[str, Any]], since: int) -> set[str]:
    """The alerts and cases that may go, from what people see of them."""
    found = set[str]()
    alone = [(one, [one]) for one in stored["alert"].values() if not one["case"]]
    of_cases = [
        (case, [case, *(one for one in stored["alert"].values() if one["case"] == case["id"])])
        for case in stored["case"].values()
    ]
    for _, together in (*alone, *of_cases):
        ids = {one["id"] for one in together}
        actions = [action for action in stored["action"].values() if action["objectId"] in ids]
        if all(may_go(one, since) for one in together) and all(is_past(action, since) for action in actions):
            found |= ids
    return found


def may_go(root: Mapping[str, Any], since: int) -> bool:
    is_closed = root["status"] in ("Ignored", "Imported", "Resolved", "Duplicate", "Deleted")
    return is_closed and (root["updatedAt"] or root["createdAt"]) < since


def is_past(action: Mapping[str, Any], since: int) -> bool:
    undo = action.get("undo") or {}
    is_in_force = undo.get("status") in ("available", "waiting", "running", "failed") or undo.get("at") is not None
    return action["status"] not in ("Waiting", "InProgress") and not is_in_force and action["endDate"] < since


# --- over HTTP ------------------------------------------------------------------------------------------------------


async def test_a_core_deletes_what_is_due_when_it_starts(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        alert = (await core.send("POST", "/api/alert", ALERT)).json()["id"]
        await core.send("POST", f"/api/alert/{alert}/markAsRead")
    later = SetClock(now_ms() + (DAYS + 1) * DAY_MS)
    settings = settings_in(tmp_path, retention=RetentionSection(alert_days=DAYS))
    core_later = await Core.open(settings, later)
    try:
        page = await core_later.feed.page(2, 60)
        assert [(event.type, event.object_id) for event in page.events] == [("alert.deleted", alert)]
    finally:
        await core_later.close()


async def test_job_folders_go_with_their_actions(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path, keep_jobs=True)
    async with core_process(setup) as core:
        actions = []
        for ref in ("kept", "gone"):
            alert = await alert_in(core, ref)
            run = (await core.send("POST", ACTION, run_body(alert))).json()
            actions.append(await core.ended(run["id"]))
        await core.send("POST", f"/api/alert/{alert}/markAsRead")
    kept, gone = (setup.job(action) for action in actions)
    assert kept.is_dir()
    assert gone.is_dir()
    settings = load(tmp_path / "settings.toml", {})
    settings = settings.model_copy(update={"retention": RetentionSection(alert_days=DAYS)})
    later = await Core.open(settings, SetClock(now_ms() + (DAYS + 1) * DAY_MS))
    try:
        await until(lambda: not gone.exists() or None, "the folder of the deleted run is gone")
        assert kept.is_dir()
    finally:
        await later.close()


async def test_the_command_tells_what_would_go_and_deletes_it_beside_a_running_core(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_core(tmp_path) as core:
        created = SetClock(now_ms() - 2 * DAY_MS)
        alerts = Alerts(core.core.database, created, "default")
        for ref in ("1", "2"):
            made = await alerts.create(LEAD, AlertInput.model_validate({**ALERT, "sourceRef": ref}))
            await alerts.mark_read(LEAD, made.id)
        config = tmp_path / "settings.toml"
        database = stores.setting(tmp_path / "core.db")
        config.write_text(f'[core]\ndatabase = "{database}"\n[retention]\nalert_days = 1\n')
        for option, left in (["--dry-run"], 2), ([], 0), (["--dry-run"], 0):
            assert await asyncio.to_thread(main, ["prune", "--config", str(config), *option]) == 0
            assert len((await core.send("GET", "/api/alert")).json()) == left
    printed = [line for line in capsys.readouterr().out.splitlines() if not line[:1].isdigit()]  # but what core logs
    assert printed == [
        *("IN    KIND   COUNT", "core  alert  2"),
        *("IN    KIND   COUNT", "core  alert  2"),
        "IN  KIND  COUNT",
    ]


@pytest.mark.sqlite
def test_the_command_leaves_a_restored_backup_to_core(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(open_database(tmp_path / "core.db").close())
    copy(tmp_path / "core.db", tmp_path / "restored.db", 1)
    config = tmp_path / "settings.toml"
    config.write_text('[core]\ndatabase = "restored.db"\n')
    assert main(["prune", "--config", str(config)]) == 2
    assert capsys.readouterr().err == "This database is a restored backup; start core with it first.\n"
