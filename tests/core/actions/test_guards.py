"""The rules of responders: who may run and approve, on what, how often, and until it fails too often."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from core.actions.approvals import Choice
from core.authorization import Caller
from core.common.database import Reads, Transaction
from core.common.database.sqlite.database import SqliteTransaction
from core.common.errors import ResponderBotError
from core.engines.base import Report
from core.models import Action, AlertInput, AlertUpdate, BulkInput, RunInput, RunTarget
from core.records.alerts import Alerts
from core.responders.guards import RulesFor
from core.responders.target import load
from core.settings import OnlyOnSection, ResponderSection
from tests.core.actions.harness import (
    ANNA,
    BEN,
    LEAD,
    ActionParts,
    Harness,
    another_core,
    next_run,
    open_harness,
)
from tests.core.actions.harness import run_input as on_alert
from tests.core.scripted_engine import NOTIFY, ScriptedEngine

HOUR_MS = 3_600_000
NAME = NOTIFY.name
IP = {"dataType": "ip", "data": "198.51.100.7"}


def rules(**rule: Any) -> Mapping[str, ResponderSection]:
    return {NAME: ResponderSection.model_validate(rule)}


def run_input(harness: Harness, **more: Any) -> RunInput:
    return on_alert(harness, NAME, **more)


def at(hours: float) -> str:
    """A time as sentences have it, so long after the tests' clock begins at 22:13 UTC."""
    return f"{datetime(2023, 11, 14, 22, 13, tzinfo=UTC) + timedelta(hours=hours):%Y-%m-%d %H:%M} UTC"


async def member(harness: Harness, group: str, login: str, *, out: bool = False) -> None:
    await (harness.people.remove_member if out else harness.people.add_member)(group, login)


async def started(harness: Harness, who: Caller = ANNA, **more: Any) -> Action:
    return (await harness.actions.start(who, run_input(harness, **more))).action


async def refused(harness: Harness, who: Caller = ANNA, **more: Any) -> tuple[str, str]:
    """Code and sentence of a run that is refused."""
    with pytest.raises(ResponderBotError) as error:
        await started(harness, who, **more)
    return error.value.code, error.value.message


async def message_of(harness: Harness, action: Action) -> str:
    return str(json.loads((await harness.ended(action.id)).report)["message"])


async def finish(harness: Harness, *, success: bool = True) -> None:
    (await next_run(harness.engine)).finish(Report(success, message="" if success else "no"))


async def ran(harness: Harness, *, success: bool = True, **more: Any) -> Action:
    action = await started(harness, **more)
    await finish(harness, success=success)
    return await harness.ended(action.id)


async def alert_with(harness: Harness, *artifacts: dict[str, str], **fields: Any) -> tuple[str, list[str]]:
    """Ids of a new alert and of its artifacts."""
    (newest,) = await harness.database.fetch_in_background("SELECT last FROM sequence WHERE name = 'id'")
    ref = str(newest["last"])
    body = {"type": "t", "source": "s", "sourceRef": ref, "title": "t", "description": "d", "artifacts": [*artifacts]}
    alert = await Alerts(harness.database, harness.clock, "soc").create(LEAD, AlertInput.model_validate(body | fields))
    return alert.id, [artifact.id for artifact in alert.artifacts]


def restarted(harness: Harness, **options: Any) -> AbstractAsyncContextManager[ActionParts]:
    """Another core on the same database and engine, perhaps with other settings."""
    return another_core(harness, harness.engine, **options)


async def stop(harness: Harness) -> None:
    """Stop following, while one program runs and the other actions wait for a slot."""
    await (await next_run(harness.engine)).begin()
    await harness.runner.close()


async def take_over(harness: Harness, core: ActionParts) -> None:
    """Let a core take over what another left: one run that was dispatched, which ends now, and what waits."""
    await core.runner.tick()
    await finish(harness)


# --- who --------------------------------------------------------------------------------------------------------


async def test_only_those_whom_the_settings_name_may_run_it(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=rules(run_by=["@containment", "ben"])) as harness:
        sentence = f"You are not authorized to run {NAME}: only @containment and ben may run it; ask one of them."
        assert await refused(harness) == ("forbidden", sentence)
        assert await refused(harness, LEAD) == ("forbidden", sentence)  # an org-admin is no exception
        assert (await started(harness, BEN)).created_by == "ben@example.org"
        await member(harness, "containment", "anna")
        assert (await started(harness)).created_by == "anna@example.org"
    (tmp_path / "none").mkdir()
    async with open_harness(tmp_path / "none", policies=rules(run_by=[])) as harness:
        _, sentence = await refused(harness)
        assert "nobody may run it" in sentence


async def test_who_left_the_group_while_the_run_waited_does_not_run_it(tmp_path: Path) -> None:
    async with open_harness(
        tmp_path, policies=rules(run_by=["@containment"]), engine=ScriptedEngine(at_once=1)
    ) as harness:
        await member(harness, "containment", "anna")
        await started(harness)
        waiting = await started(harness)
        await member(harness, "containment", "anna", out=True)
        await finish(harness)
        assert f"{NAME} did not run: only @containment may run it" in await message_of(harness, waiting)
        assert len(harness.engine.runs) == 1


async def test_only_approvers_decide_and_never_the_requester(tmp_path: Path) -> None:
    policies = rules(approval=1, approve_by=["@leads"])
    async with open_harness(tmp_path, policies=policies) as harness:
        for login in ("anna", "lead"):
            await member(harness, "leads", login)
        action = await started(harness)
        choices: tuple[Choice, ...] = ("approve", "deny")
        for choice in choices:
            with pytest.raises(ResponderBotError, match="Only @leads may approve or deny") as error:
                await harness.actions.decide(BEN, action.id, choice)
            assert (error.value.code, error.value.details) == ("forbidden", {"rule": "approve_by"})
            with pytest.raises(ResponderBotError, match="somebody else must"):
                await harness.actions.decide(ANNA, action.id, choice)
        await member(harness, "leads", "lead", out=True)
        with pytest.raises(ResponderBotError, match="Only @leads may approve or deny"):
            await harness.actions.decide(LEAD, action.id, "approve")
        await member(harness, "leads", "lead")
        await harness.actions.decide(LEAD, action.id, "approve")
        await finish(harness)
        assert (await harness.ended(action.id)).status == "Success"


async def test_an_approver_who_was_taken_off_the_list_counts_no_more(tmp_path: Path) -> None:
    policies = rules(approval=1, approve_by=["ben"])
    async with open_harness(tmp_path, policies=policies, engine=ScriptedEngine(at_once=1)) as harness:
        first, second = await started(harness), await started(harness)
        await harness.actions.decide(BEN, first.id, "approve")
        await harness.actions.decide(BEN, second.id, "approve")
        await stop(harness)
        async with restarted(harness, policies=rules(approval=1, approve_by=["lead"])) as core:
            await take_over(harness, core)
            assert f"ben@example.org approved this and may no longer approve {NAME}" in await message_of(
                harness, second
            )


def in_slack(who: Caller) -> Caller:
    return replace(who, acted_through="bot@example.org")


async def test_the_vote_of_somebody_whose_clearance_was_lowered_counts_no_more(tmp_path: Path) -> None:
    engine = ScriptedEngine(at_once=1)
    async with open_harness(tmp_path, policies=rules(approval=1), engine=engine) as harness:
        first, second, third = [await started(harness) for _ in range(3)]
        for action, voter in ((first, BEN), (second, in_slack(BEN)), (third, BEN)):
            await harness.actions.decide(voter, action.id, "approve")
        await harness.people.set_clearance("ben", 1)
        for _ in range(2):
            await finish(harness)
        assert await message_of(harness, second) == (
            "ben@example.org approved this and may no longer see it, so it did not run; run it again if it is"
            " still needed."
        )
        # Clearances bind nobody who uses their own key.
        assert (await harness.ended(third.id)).status == "Success"
        assert len(harness.engine.runs) == 2


async def test_a_run_that_was_recorded_before_it_needed_approval_does_not_start(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=1)) as harness:
        await started(harness)
        waiting = await started(harness)
        await stop(harness)
        async with restarted(harness, policies=rules(approval=1)) as core:
            await take_over(harness, core)
            assert "needs approval by now" in await message_of(harness, waiting)


async def test_more_approvals_by_now_are_more_votes(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=rules(approval=1)) as harness:
        action = await started(harness)
        async with restarted(harness, policies=rules(approval=2)) as core:
            await core.actions.decide(BEN, action.id, "approve")
            assert (await harness.action(action.id)).status == "Waiting"
            assert not harness.engine.runs
            await core.actions.decide(LEAD, action.id, "approve")
            await finish(harness)
            assert (await harness.ended(action.id)).status == "Success"


# --- on what --------------------------------------------------------------------------------------------------------


async def test_it_runs_only_on_what_the_settings_say(tmp_path: Path) -> None:
    only = {"data_types": ["ip", "alert"], "tags": ["prod"], "severity_at_least": 3}
    async with open_harness(tmp_path, policies=rules(only_on=only), severity=2, tags=["Prod"]) as harness:
        assert await refused(harness) == (
            "bad_request",
            f"{NAME} can't run: it runs from severity high on; an administrator may change its only_on.",
        )
        alert, (ip, domain) = await alert_with(harness, IP, {"dataType": "domain", "data": "e.example"}, severity=3)
        assert "what is tagged prod" in (await refused(harness, objectId=alert))[1]
        on: dict[str, Any] = {"objectType": "case_artifact"}
        assert "it runs on ip and alert only" in (await refused(harness, objectId=domain, **on))[1]
        await Alerts(harness.database, harness.clock, "soc").update(LEAD, alert, AlertUpdate(add_tags=["prod"]))
        assert (await started(harness, objectId=ip, **on)).status == "Waiting"
        assert (await started(harness, objectId=alert)).status == "Waiting"


# --- how often --------------------------------------------------------------------------------------------------------


async def test_a_rate_is_kept_and_says_when_it_is_free_again(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=rules(rate=["2/1h", "3/1d"])) as harness:
        await ran(harness)
        harness.clock.now_ms += HOUR_MS // 2
        await ran(harness)
        with pytest.raises(ResponderBotError) as error:
            await started(harness)
        assert error.value.code == "rate_limited"
        assert error.value.message == (
            f"{NAME} can't run: the limit of 2 runs in 1 hour is reached; free again at {at(1)};"
            " an administrator may override it, with a reason and another administrator's approval."
        )
        assert error.value.details["retryAfter"] == 1800
        harness.clock.now_ms += HOUR_MS // 2
        await ran(harness)
        harness.clock.now_ms += HOUR_MS
        assert (
            "the limit of 3 runs in 1 day is reached; free again at 2023-11-15 22:13 UTC" in (await refused(harness))[1]
        )


async def test_a_restart_and_a_second_core_count_what_ran_before(tmp_path: Path) -> None:
    policies = rules(rate=["2/1h"])
    async with open_harness(tmp_path) as harness:  # the rule comes with the restart
        await ran(harness)
        async with restarted(harness, policies=policies) as one:
            await one.actions.start(ANNA, run_input(harness))
            await finish(harness)
            async with restarted(harness, policies=policies) as two:
                with pytest.raises(ResponderBotError) as error:
                    await two.actions.start(BEN, run_input(harness))
        assert error.value.code == "rate_limited"


async def test_of_200_simultaneous_requests_to_two_cores_five_run(tmp_path: Path) -> None:
    policies = rules(rate=["5/1h"])
    async with (
        open_harness(tmp_path, policies=policies) as harness,
        restarted(harness, policies=policies) as other,
    ):
        cores = (harness.actions, other.actions)
        answers = await asyncio.gather(
            *(cores[number % 2].start(ANNA, run_input(harness)) for number in range(200)), return_exceptions=True
        )
        codes = [answer.code for answer in answers if isinstance(answer, ResponderBotError)]
        assert codes == ["rate_limited"] * 195
        for _ in range(5):
            await next_run(harness.engine)
        assert len(harness.engine.runs) == 5


async def test_requests_that_wait_for_approval_hold_their_place(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=rules(rate=["1/1h"], approval=1)) as harness:
        waiting = await started(harness)
        harness.clock.now_ms += HOUR_MS // 2
        assert (await refused(harness))[1].startswith(
            f"{NAME} can't run: the limit of 1 run in 1 hour is reached, counting runs that have yet to end;"
        )
        await harness.actions.decide(BEN, waiting.id, "deny")
        await started(harness)  # what never ran is not counted


async def test_when_a_rate_is_free_again_is_said_only_once_it_is_known_and_of_a_bulk_as_it_is_read(
    tmp_path: Path,
) -> None:
    async with open_harness(tmp_path, policies=rules(rate=["1/1h", "9/1d"], approval=1)) as harness:
        other, _ = await alert_with(harness)
        targets = [RunTarget(object_type="alert", object_id=id_) for id_ in (harness.alert_id, other)]
        bulk = await harness.bulks.start(ANNA, BulkInput(responder_id=NAME, targets=targets))

        async def until() -> tuple[Any, Any]:
            """Of a run that is refused, and of the bulk."""
            with pytest.raises(ResponderBotError) as error:
                await started(harness, BEN)
            assert error.value.code == "rate_limited"
            return error.value.details.get("until"), (await harness.bulks.get(bulk.id)).free_at

        assert await until() == (None, None)
        harness.clock.now_ms += HOUR_MS // 2
        await harness.bulks.decide(BEN, bulk.id, "approve")
        await finish(harness)
        free_at = harness.clock() + HOUR_MS
        assert await until() == (free_at, free_at)
        harness.clock.now_ms += HOUR_MS
        assert (await harness.bulks.get(bulk.id)).free_at is None


async def test_runs_that_were_asked_for_over_hours_do_not_start_at_once(tmp_path: Path) -> None:
    policies = {NAME: ResponderSection(approval=1, approval_expires_minutes=600)}
    async with open_harness(tmp_path, policies=policies) as harness:
        waiting = [await started(harness) for _ in range(2)]  # before there was a rate
        async with restarted(harness, policies={NAME: policies[NAME].model_copy(update={"rate": ("1/1h",)})}) as core:
            await core.actions.decide(BEN, waiting[0].id, "approve")
            await finish(harness)
            await harness.ended(waiting[0].id)
            with pytest.raises(ResponderBotError) as error:
                await core.actions.decide(BEN, waiting[1].id, "approve")
            assert error.value.code == "rate_limited"
            assert (await harness.action(waiting[1].id)).status == "Waiting"  # and can be approved once it is free
            harness.clock.now_ms += HOUR_MS
            await core.actions.decide(BEN, waiting[1].id, "approve")
            await finish(harness)
            assert (await harness.ended(waiting[1].id)).status == "Success"


async def test_a_queue_does_not_outrun_its_rate(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=1)) as harness:
        first, second = await started(harness), await started(harness)
        await stop(harness)
        async with restarted(harness, policies=rules(rate=["1/1h"])) as core:
            await take_over(harness, core)
            assert "did not run: the limit of 1 run in 1 hour is reached" in await message_of(harness, second)
            assert (await harness.ended(first.id)).status == "Success"


async def test_a_clock_that_is_set_back_neither_frees_a_rate_nor_blocks_it_for_ever(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=rules(rate=["1/1h"])) as harness:
        await ran(harness)
        harness.clock.now_ms -= HOUR_MS // 2
        with pytest.raises(ResponderBotError) as error:
            await started(harness)
        assert error.value.details["retryAfter"] == 3600
        harness.clock.now_ms -= 24 * HOUR_MS
        await started(harness)


async def test_a_repeated_request_is_the_same_run_and_its_key_no_way_round_a_rate(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=rules(rate=["1/1h"])) as harness:
        first = await harness.actions.start(ANNA, run_input(harness), key="k", body="{}")
        again = await harness.actions.start(ANNA, run_input(harness), key="k", body="{}")
        assert (again.action.id, again.new) == (first.action.id, False)
        for who, key in ((ANNA, "other"), (BEN, "k")):
            with pytest.raises(ResponderBotError) as error:
                await harness.actions.start(who, run_input(harness), key=key, body="{}")
            assert error.value.code == "rate_limited"


SPELLED = {
    "ip": ["198.51.100.7", "::ffff:198.51.100.7", "198[.]51[.]100[.]7", "198.51.100.7/32", " 198.51.100.7\n"],
    "hostname": ["ws-7", "WS-7.", "ＷＳ-７"],
    "url": ["https://ws-7.example/x", "hxxps://u:p@WS-7[.]example:443/a/../x#f"],
    "mail": ["anna@corp.example", "anna[@]CORP[.]example"],
    "hash": ["d41d8cd98f00b204e9800998ecf8427e", "D41D8CD98F00B204E9800998ECF8427E "],
}
OTHERS = [
    ("ip", "198.51.100.8"), ("hostname", "CORP\\ws-7$"), ("hostname", "ws-7.corp.example"), ("other", "198.51.100.7"),
    ("mail", "ANNA@corp.example"), ("other", "invoice one.pdf"), ("other", "invoice two.pdf"),
    ("url", "http://ws-7.example/x"),
]  # fmt: skip


async def test_an_artifact_is_one_target_wherever_and_however_it_is_written(tmp_path: Path) -> None:
    on: dict[str, Any] = {"objectType": "case_artifact"}
    async with open_harness(tmp_path, policies=rules(rate_per_target=["1/24h"])) as harness:
        for kind, (first, *others) in SPELLED.items():
            _, [artifact] = await alert_with(harness, {"dataType": kind, "data": first})
            await ran(harness, objectId=artifact, **on)
            _, copies = await alert_with(harness, *({"dataType": kind, "data": text} for text in (first, *others)))
            for copy, text in zip((artifact, *copies), (first, first, *others), strict=True):
                assert (await refused(harness, objectId=copy, **on))[0] == "rate_limited", text
        for kind, text in OTHERS:
            _, [artifact] = await alert_with(harness, {"dataType": kind, "data": text})
            await ran(harness, objectId=artifact, **on)
        await started(harness)


async def test_a_rate_per_target_tells_nothing_of_the_runs_that_it_counts(tmp_path: Path) -> None:
    on: dict[str, Any] = {"objectType": "case_artifact"}
    async with open_harness(tmp_path, policies=rules(rate_per_target=["2/24h"])) as harness:
        red: dict[str, Any] = {**IP, "tlp": 3}
        _, [hidden] = await alert_with(harness, red)
        _, [seen] = await alert_with(harness, IP)
        await ran(harness, objectId=hidden, **on)

        def offered(reads: Reads) -> list[str]:
            own = RulesFor(harness.guards, reads, ANNA.login)
            return own.usage(NAME, load(reads, "case_artifact", int(seen[1:])))

        assert await harness.database.read(offered) == []
        await ran(harness, objectId=hidden, **on)
        with pytest.raises(ResponderBotError) as error:
            await harness.actions.start(ANNA, run_input(harness, objectId=seen, **on))
        assert error.value.message == (
            f"{NAME} can't run: the limit of 2 runs in 24 hours is reached on this target; an administrator may"
            " override it, with a reason and another administrator's approval."
        )
        assert error.value.details == {"rule": "rate_per_target"}


async def test_a_case_is_the_target_that_its_alert_is(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=rules(rate_per_target=["1/24h"])) as harness:
        await ran(harness)
        alerts = Alerts(harness.database, harness.clock, "soc")
        case = await alerts.create_case(LEAD, harness.alert_id, None)
        for target in (harness.alert_id, case.id):
            kind = "alert" if target == harness.alert_id else "case"
            assert (await refused(harness, objectId=target, objectType=kind))[0] == "rate_limited"
        harness.clock.now_ms += 24 * HOUR_MS
        await ran(harness, objectId=case.id, objectType="case")
        assert (await refused(harness))[0] == "rate_limited"


# --- reasons --------------------------------------------------------------------------------------------------------


async def test_lists_say_which_rule_stands_in_the_way_and_who_can_lift_it(tmp_path: Path) -> None:
    policies = rules(run_by=["@containment"], rate=["2/1h"], only_on=OnlyOnSection(severity_at_least=4))
    async with open_harness(tmp_path, policies=policies) as harness:

        def explained(reads: Reads) -> Any:
            target = load(reads, "alert", int(harness.alert_id[1:]))
            own = RulesFor(harness.guards, reads, ANNA.login)
            offered = harness.registry.offered(target, own)
            found = harness.registry.explained(target, may_run=True, open_runs={}, rules=own)
            return NAME in [item.name for item in offered], next(item for item in found if item.name == NAME)

        is_offered, responder = await harness.database.read(explained)
        assert (is_offered, responder.verdict) == (False, "cannot_run")
        assert responder.reasons == []
        assert [(refusal.rule, refusal.message, refusal.lift) for refusal in responder.refusals] == [
            ("run_by", "only @containment may run it", "ask one of them"),
            ("only_on", "it runs from severity critical on", "an administrator may change its only_on"),
        ]
        assert not responder.can_be_overridden
        assert (responder.policy.run_by, responder.policy.rate) == (["@containment"], ["2/1h"])
        await member(harness, "containment", "anna")
        alerts = Alerts(harness.database, harness.clock, "soc")
        await alerts.update(LEAD, harness.alert_id, AlertUpdate(severity=4))
        await ran(harness)
        is_offered, responder = await harness.database.read(explained)
        assert (is_offered, responder.reasons) == (True, ["1 of 2 runs in 1 hour are used"])
        await ran(harness)
        _, responder = await harness.database.read(explained)
        assert responder.refusals[0].until == harness.clock.now_ms + HOUR_MS
        assert responder.refusals[0].message == "the limit of 2 runs in 1 hour is reached"
        assert responder.can_be_overridden


async def test_a_group_without_members_is_a_problem_that_health_tells(tmp_path: Path) -> None:
    async with open_harness(tmp_path, policies=rules(approval=1, approve_by=["@leads"])) as harness:
        nobody, problem = await harness.database.read(harness.guards.problems)
        assert nobody.startswith(f"No run of {NAME} can be approved: ")
        assert problem.startswith(f"approve_by of {NAME} names the group leads, which has no members;")
        await member(harness, "leads", "lead")
        assert await harness.database.read(harness.guards.problems) == []


async def test_a_login_that_nobody_has_is_a_problem_that_health_tells(tmp_path: Path) -> None:
    """It is the only one: who could approve a run that nobody may ask for is no question."""
    policies = rules(run_by=["nobody-at-all"], approval=9, approve_by=["anna"])
    async with open_harness(tmp_path, policies=policies) as harness:
        (problem,) = await harness.database.read(harness.guards.problems)
        assert problem.startswith(f"run_by of {NAME} names nobody-at-all, which is nobody's login; correct it, or")


# --- cost --------------------------------------------------------------------------------------------------------


async def statements_of_a_start(harness: Harness) -> list[str]:
    """What the transactions that record and dispatch a run have SQLite do."""
    found: list[str] = []

    def trace(tx: Transaction, to: Any) -> None:
        assert isinstance(tx, SqliteTransaction)
        tx._connection.set_trace_callback(to)

    await harness.database.transaction(lambda tx: trace(tx, found.append))
    await started(harness)
    await next_run(harness.engine)
    await harness.database.transaction(lambda tx: trace(tx, None))
    texts = [" ".join(text.split()[:3]) for text in found]
    return [text for text in texts if text.split()[0] in ("SELECT", "INSERT", "UPDATE", "DELETE")]


@pytest.mark.sqlite
async def test_a_responder_without_rules_costs_no_statement_more(tmp_path: Path) -> None:
    async with open_harness(tmp_path, engine=ScriptedEngine(at_once=9), audited=False) as harness:
        plain = await statements_of_a_start(harness)
    others = {"BlockHost_1_0": ResponderSection(run_by=("ben",), rate=("1/1h",))}
    (tmp_path / "2").mkdir()
    async with open_harness(
        tmp_path / "2", engine=ScriptedEngine(at_once=9), policies=others, audited=False
    ) as harness:
        assert await statements_of_a_start(harness) == plain
    assert len(plain) == STATEMENTS


STATEMENTS = 13
"""To record and dispatch the first run on an alert in one transaction, with two rows of the audit."""


async def test_rules_hold_for_a_name_in_other_letters_as_its_configuration_does(tmp_path: Path) -> None:
    policies = {NAME.lower(): ResponderSection(run_by=("ben",), approval=1)}
    async with open_harness(tmp_path, policies=policies) as harness:
        assert (await refused(harness))[0] == "forbidden"
        assert (await started(harness, BEN)).approval is not None
