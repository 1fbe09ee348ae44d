"""Who decided what, in Slack: anybody reads the story of what they may see."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from bot.block_kit.text import SECTION_LIMIT
from bot.features.audit import story
from core.audit import trail
from core.client import CoreClient
from core.common.clock import HOUR_MS
from core.common.errors import ResponderBotError
from core.models import AuditRow
from tests.bot.features.bulks.bulk import start
from tests.bot.features.environment import DONE, MANIFEST, feature_environment
from tests.bot.people import card_of, message_in, modal, text_of
from tests.bot.running import ANNA, SOC, BotEnvironment, running_bot


@pytest_asyncio.fixture
async def env(tmp_path: Path) -> AsyncIterator[BotEnvironment]:
    async with running_bot(tmp_path, manifest=MANIFEST) as running:
        yield running


async def test_anybody_reads_who_decided_what_about_what_they_may_see(env: BotEnvironment) -> None:
    alert, hidden = await env.post_alert(), await env.post_alert(sourceRef="2", tlp=3)
    texts = {"reason": "evidence of 203.0.113.7"}
    for id_ in (alert, hidden):
        await env.core.core.database.transaction(
            lambda tx, id_=id_: trail.record(tx, 0, "request.refused", by="lea@x", object=id_, texts=texts)  # type: ignore[misc]
        )
    anna = await env.person(ANNA)
    await anna.command(SOC, f"/responder audit {alert}")
    shown = text_of(await anna.sees(modal(f"Audit of {alert}")))
    assert "evidence of 203[.]0[.]113[.]7" in shown
    await anna.command(SOC, f"/responder audit {hidden}")
    refused = text_of(await anna.sees(message_in(SOC, "TLP:RED")))
    assert "evidence" not in refused
    await anna.command(SOC, "/responder audit ~9999")
    await anna.sees(message_in(SOC, "Nothing has the id ~9999."))
    await anna.command(SOC, "/responder audit")
    await anna.sees(message_in(SOC, "Type `/responder audit ~id`; "))


async def test_a_run_is_called_what_it_was_on_and_not_by_its_number(tmp_path: Path) -> None:
    async with feature_environment(
        tmp_path, {"Isolate": {"undo": "Tell_1_0", "target": "hostname", "undo_after_minutes": 60}}
    ) as env:
        alert = await env.create_alert(artifacts=[{"dataType": "hostname", "data": "LT-0500"}])
        await env["anna"].command(SOC, f'/responder run isolate {alert.id} note="It beacons"')
        await env["anna"].presses("Ask to isolate", await env["anna"].sees(modal("one of them approves")))
        await env["anna"].sees(card_of(alert, "needs 1 approval"))
        (run,) = await env.client.actions("alert", alert.id)
        (offered,) = [one for one in await env.client.responders("alert", alert.id) if one.name == "Isolate_1_0"]
        again = {"responderId": offered.id, "objectType": "alert", "objectId": alert.id}
        async with CoreClient(env.core.url, env.service_key) as bot:
            with pytest.raises(ResponderBotError, match="to withdraw it"):
                await bot.as_user("anna").run({**again, "target": [alert.artifacts[0].id], "onlyIfIdle": True})
        await env["ben"].command(SOC, f"/responder approve {run.id}")
        await env["ben"].submits(await env["ben"].sees(modal("`LT-0500` for 1 hour?")))
        await env.ended_run(alert)
        await env["ben"].sees(card_of(alert, "in force"))
        await env.client.undo(run.id)
        (undone_by,) = [one for one in await env.client.actions("alert", alert.id) if one.undoes]
        await env["anna"].command(SOC, f"/responder audit {alert.id}")
        shown = text_of(await env["anna"].sees(modal("started Tell on ")))
        what = "Isolate on LT-0500"
        assert f' *anna* asked to run {what} for 1 hour; it needs 1 approval: \\"It beacons\\""' in shown
        assert f' *ben* approved {what} (1 of 1)"' in shown
        assert f", which undoes {what}" in shown
        assert f" *anna* was refused a run of {what}: " in shown
        assert not re.search(rf"through|lt-0500|{run.id}\\b|{undone_by.id}\\b", shown)


async def test_one_reads_who_worked_on_an_alert_closed_and_reopened_it_and_withdrew_a_run(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"target": "hostname"}}) as env:
        alert = await env.create_alert(artifacts=[{"dataType": "hostname", "data": "LT-0500"}])
        async with CoreClient(env.core.url, env.service_key) as bot:
            anna, lea = bot.as_user("anna"), bot.as_user("lea")
            await anna.assign_alert(alert.id, "anna@responder-bot.local")
            run = await anna.run({"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id})
            await anna.cancel(run.id)
            await lea.close_alerts([alert.id], "Noise of the scanner")
            await lea.reopen_alerts([alert.id])
            await lea.assign_alert(alert.id, "ben@responder-bot.local")
            await lea.assign_alert(alert.id, "")
            case = await lea.create_case_from_alert(alert.id)
            with pytest.raises(ResponderBotError, match="not authorized to change alert") as refused:
                await bot.as_user("eve").assign_alert(alert.id, "")
        await env["anna"].command(SOC, f"/responder audit {alert.id}")
        there = f"· in case {case.id}: `/responder audit {case.id}` tells what ran there"
        shown = await env["anna"].sees(modal(f"Audit of {alert.id}", there))
        assert [block["text"]["text"].partition("> *")[2] for block in shown["blocks"][1:-1]] == [
            f"anna* assigned {alert.id} to themselves",
            "anna* asked to run Isolate on LT-0500; it needs 1 approval",
            "anna* withdrew Isolate on LT-0500",
            f'lea* closed {alert.id}: "Noise of the scanner"',
            f"lea* reopened {alert.id}",
            f"lea* assigned {alert.id} to ben",
            f"lea* unassigned ben from {alert.id}",
            f"lea* put {alert.id} into the case {case.id}",
            f'eve* was refused a request on {alert.id}: "{refused.value.message}"',
        ]


async def test_what_ran_on_alerts_of_a_case_belongs_to_it_and_to_the_observable_it_acted_on(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"target": "hostname"}}) as env:
        (host, other), red = [{"dataType": "hostname", "data": f"LT-050{n}"} for n in range(2)], "LT-0509"
        alert = await env.create_alert(artifacts=[host, other])
        hidden = await env.create_alert(sourceRef="red", tlp=3, artifacts=[{"dataType": "hostname", "data": red}])
        body = {"responderId": "Isolate_1_0", "objectType": "alert"}
        async with CoreClient(env.core.url, env.service_key) as bot:
            for named in (alert.artifacts[0].id, alert.artifacts[1].id):
                await bot.as_user("lea").run({**body, "objectId": alert.id, "target": [named], "onlyIfIdle": False})
            await bot.as_user("lea").run({**body, "objectId": hidden.id})
        for in_case in (False, True):
            if in_case:
                case = await env.client.create_case_from_alert(alert.id)
                await env.client.merge_alerts([hidden.id], case.id)
                await env["anna"].command(SOC, f"/responder audit {case.id}")
                shown = text_of(await env["anna"].sees(modal(f"Audit of {case.id}", "asked to run Isolate on LT-0500")))
                assert "asked to run Isolate on LT-0501" in shown
                title = f"Audit of {case.id}: HIGH ET MALWARE Beacon to known C2 ({case.id}) · made by admin"
                assert f"*{title}*" in shown
                assert f"*admin* put {alert.id} into the case {case.id}" in shown
                assert f"put {hidden.id}" not in shown
                assert red not in shown
            await env["anna"].command(SOC, f"/responder audit {alert.artifacts[1].id}")
            shown = text_of(await env["anna"].sees(modal(f"Audit of {alert.artifacts[1].id}", "on LT-0501")))
            assert "Isolate on LT-0500" not in shown


async def test_of_a_bulk_one_reads_who_decided_on_which_targets_and_why_but_not_on_what_one_may_not_see(
    tmp_path: Path,
) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"target": "hostname"}}) as env:
        hosts = [f"LT-050{n}" for n in range(4)]
        ids = [
            (
                await env.create_alert(
                    sourceRef=host, tlp=tlp, severity=level, artifacts=[{"dataType": "hostname", "data": host}]
                )
            ).id
            for host, tlp, level in zip(hosts, (2, 2, 2, 3), (2, 3, 4, 4), strict=True)
        ]
        await start(env, "ben", "isolate", ids)
        runs = [(await env.client.actions("alert", one))[0] for one in ids]
        bulk = str(runs[0].bulk)
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("lea").deny_bulk(bulk, [runs[1].id], "Healthy backup")
            for name, approved in (("lea", runs[2:]), ("anna", runs[:1])):
                await bot.as_user(name).approve_bulk(bulk, [run.id for run in approved])
                for run in approved:
                    while (await env.client.action(run.id, wait_s=10)).end_date is None:
                        pass
        await env["anna"].command(SOC, f"/responder audit {bulk}")
        shown = text_of(await env["anna"].sees(modal("*lea* approved")))
        assert f"*Audit of {bulk}: Isolate on hostname LT-0502, LT-0501, LT-0500*" in shown
        assert ' *lea* denied Isolate on LT-0501: \\"Healthy backup\\""' in shown
        of_all = "LT-0502, LT-0501, LT-0500"
        story_of_it = [  # none seems to have started before it was approved
            f' *ben* asked to run Isolate on {of_all}; it needs 1 approval"',
            ' *lea* approved Isolate on LT-0502 (1 of 1)"',
            ' *Core* started Isolate on LT-0502"',
            ' *anna* approved Isolate on LT-0500 (1 of 1)"',
            ' *Core* started Isolate on LT-0500"',
        ]
        where = [shown.index(said) for said in story_of_it]
        assert where == sorted(where)
        assert "LT-0503" not in shown
        assert runs[0].id not in shown


async def test_its_texts_show_what_cards_show_and_how_much_ran_on_what_is_withheld(tmp_path: Path) -> None:
    report = {**DONE, "full": {"message": "SECRET-SRV9 is next."}}
    async with feature_environment(tmp_path, {"Isolate": {"target": "hostname"}}, {"Isolate": report}) as env:
        hosts = [{"dataType": "hostname", "data": data, "tlp": tlp} for data, tlp in (("LT-1", 0), ("SECRET-SRV9", 2))]
        alert = await env.create_alert(tlp=0, artifacts=hosts)
        clear, amber = (one.id for one in alert.artifacts)
        body = {"responderId": "Isolate_1_0", "objectType": "alert", "objectId": alert.id, "onlyIfIdle": False}
        async with CoreClient(env.core.url, env.service_key) as bot:
            anna = bot.as_user("anna")
            ran = [await anna.run({**body, "target": [clear], "note": f"{n}: after SECRET-SRV9"}) for n in range(2)]
            await anna.run({**body, "target": [amber]})
            await bot.as_user("ben").deny(ran[0].id, "SECRET-SRV9 first")
            await bot.as_user("ben").approve(ran[1].id)
        while (await env.client.action(ran[1].id, wait_s=10)).end_date is None:
            pass
        await env.core.core.people.set_clearance("eve", 0)
        for name, is_shown in (("anna", True), ("eve", False)):
            for id_, of in ((alert.id, range(2)), (clear, range(2)), (ran[0].id, [0]), (ran[1].id, [1])):
                await env[name].command(SOC, f"/responder audit {id_}")
                shown = text_of(await env[name].sees(modal(f"Audit of {id_}", f"{of[0]}: after ")))
                assert ("SECRET-SRV9" in shown) == is_shown
                for number in of:
                    assert f"{number}: after {'SECRET-SRV9' if is_shown else '[withheld]'}" in shown
                assert ("SECRET-SRV9 first" in shown) == (is_shown and 0 in of)
                assert ("SECRET-SRV9 is next" in shown) == (is_shown and 1 in of)
                assert ("1 run, 1 waiting for approval, details withheld (TLP:AMBER)" in shown) == (
                    not is_shown and id_ == alert.id
                )


async def test_of_a_bulk_one_reads_all_that_was_undone_together_and_what_was_refused(tmp_path: Path) -> None:
    async with feature_environment(tmp_path, {"Isolate": {"target": "hostname", "undo": "Tell_1_0"}}) as env:
        hosts = ["LT-0501", "LT-0502"]
        alerts = [
            await env.create_alert(sourceRef=host, artifacts=[{"dataType": "hostname", "data": host}]) for host in hosts
        ]
        other = await env.create_alert(sourceRef="other", artifacts=[{"dataType": "ip", "data": "203.0.113.9"}])
        targets = [{"objectType": "alert", "objectId": one.id} for one in (*alerts, other)]
        bulk = (await env.client.run_bulk({"responderId": "Isolate_1_0", "targets": targets})).id
        runs = [(await env.client.actions("alert", one.id))[0] for one in alerts]
        async with CoreClient(env.core.url, env.service_key) as bot:
            await bot.as_user("lea").approve_bulk(bulk, [run.id for run in runs])
            for one in alerts:
                await env.ended_run(one)
            for run in runs:
                await bot.as_user("lea").undo(run.id)
            for one in alerts:
                await env.ended_run(one)
        await env["anna"].command(SOC, f"/responder audit {bulk}")
        shown = text_of(await env["anna"].sees(modal("undoes")))
        on = ", ".join(hosts)
        assert f" *lea* started Tell on {on}, which undoes Isolate on {on}" in shown
        why = "Isolate can't run on this: this alert names no host."
        assert f' *admin* was refused a run of Isolate on {other.id}: \\"{why}\\"' in shown


def test_a_row_of_a_bulk_names_each_of_its_targets_whole_and_the_reason_has_its_line() -> None:
    ran = {f"~{n}": ("Isolate", f"srv-{n:03}-{'finance-' * 9}backup", "") for n in range(3, 63)}
    rows = [
        AuditRow(
            number=n, hash="", at=0, what="run.denied", by="lea", object=run,
            sentence=f'lea denied {run}, Isolate_1_0 on ~1: "Known noise"',
            row={"object": run, "responder": "Isolate_1_0", "on": "~1"}, texts={},
        )
        for n, run in enumerate(ran)
    ]  # fmt: skip
    texts = [block["text"]["text"] for block in story("~2", rows, ran, ran).blocks[1:]]
    line, _, reason = "".join(texts).partition("denied Isolate on ")[2].partition(":\n")
    assert line.split(", ") == [on for _, on, _ in ran.values()]
    assert reason == '"Known noise"'
    assert max(map(len, texts)) <= SECTION_LIMIT
    later = [row.model_copy(update={"at": hour * HOUR_MS}) for hour in range(60) for row in rows]
    newest = story("~2", later, ran, ran)
    assert len(newest.blocks) < 100
    last = f": the last {(len(newest.blocks) - 1) // len(texts)} of 60 rows. An administrator's `responder-bot audit"
    assert newest.text.endswith(f"{last} export` has all.")


def test_times_of_a_sentence_are_the_readers() -> None:
    sentence = "anna@x.example asked to move the end of ~3, Isolate_1_0 on ~1, from no end to 2026-11-29 04:56:21 UTC"
    doc: dict[str, object] = {"by": "anna@x.example", "object": "~3", "responder": "Isolate_1_0"}
    row = AuditRow(
        number=1, hash="", at=0, what="extension.requested", by="anna@x.example", object="~3", sentence=sentence,
        row=doc, texts={},
    )  # fmt: skip
    shown = text_of(story("~3", [row], {}).payload())
    at = "<!date^1795928160^{date_short_pretty} {time}|2026-11-29 04:56 UTC>"
    assert f"*anna* asked to move the end of ~3, Isolate on ~1, from no end to {at}" in shown
    doc |= {"extension": "~7", "after": 1795928181000, "on": "~1"}
    sentence = "anna@x.example approved more time for ~3, Isolate_1_0 on ~1"
    approved = row.model_copy(update={"number": 2, "what": "extension.approved", "sentence": sentence})
    row.row.update(doc)
    approved.row.update(doc)
    shown = text_of(story("~3", [row, approved], {"~3": ("Isolate", "LT-1", " for 1 hour")}).payload())
    assert f"*anna* approved more time for Isolate on LT-1, until {at}" in shown


def test_people_are_no_indicators() -> None:
    asked = ["ben@example.org", "lea@example.org"]
    sentence = f"Core asked {' and '.join(asked)} to approve ~3; note: it wrote to ben@example.org.evil.example"
    sentence = f"Core (through bot@example.org) {sentence[5:]}"
    doc = {"by": "lea@example.org", "through": "bot@example.org", "object": "~3", "to": asked}
    row = AuditRow(
        number=1, hash="", at=0, what="approval.asked", by="core", object="~3", sentence=sentence, row=doc, texts={},
    )  # fmt: skip
    shown = text_of(story("~3", [row], {}).payload())
    assert "*Core* asked ben and lea to approve ~3; note: it wrote to ben[@]example[.]org[.]evil[.]example" in shown
