"""Responders merged over several engines, and why some can't run."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from operator import methodcaller
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from core.common.errors import ResponderBotError
from core.engines.base import Catalogue, Skipped
from core.models import KINDS
from core.responders.catalogues import merge
from core.responders.registry import Registry
from core.responders.settings_section import settings_problems
from core.responders.target import OpenRun, Target, applies
from core.settings import ResponderSection
from core.store.hosts import catalogue_of
from tests.clock import SetClock
from tests.core.scripted_engine import BLOCK_HOST, NOTIFY, ScriptedEngine
from tests.stores import opened

ALERT = Target("alert", 1, 1, tlp=2, pap=2, json={})
RED = Target("alert", 1, 1, tlp=3, pap=2, json={})


@asynccontextmanager
async def opened_registry(tmp_path: Path, engines: Sequence[ScriptedEngine]) -> AsyncIterator[Registry]:
    policies = {"BlockHost_1_0": ResponderSection(confirm="It cuts the host off.", approval=1)}
    async with opened(tmp_path / "core.db") as database:
        registry = Registry(engines, policies, database, SetClock())
        await registry.open()
        try:
            yield registry
        finally:
            await registry.close()


async def test_the_first_engine_gives_id_and_texts_and_all_engines_are_named(tmp_path: Path) -> None:
    second = replace(BLOCK_HOST, id="other-id", description="other words")
    engines = [ScriptedEngine("one", [NOTIFY, BLOCK_HOST]), ScriptedEngine("two", [second])]
    async with opened_registry(tmp_path, engines) as registry:
        offered = registry.offered(ALERT)
        by_second_id = registry.choose(ALERT, "other-id", None)
        by_name_on_second = registry.choose(ALERT, "BlockHost_1_0", "two")
    assert [(o.id, o.name, o.description, o.engine_ids) for o in offered] == [
        ("r-block", "BlockHost_1_0", "Cuts a host off the network", ["one", "two"]),
        ("r-notify", "Notify_2_1", "Tells somebody", ["one"]),
    ]
    assert offered[0].verdict is None
    assert (by_second_id.engine_name, by_second_id.responder.id) == ("one", "r-block")
    assert (by_name_on_second.engine_name, by_name_on_second.responder.id) == ("two", "other-id")


async def test_a_responder_below_the_object_s_tlp_is_explained_and_not_offered(tmp_path: Path) -> None:
    async with opened_registry(tmp_path, [ScriptedEngine()]) as registry:
        offered = [o.name for o in registry.offered(RED)]
        explained = registry.explained(
            RED, may_run=True, open_runs={"Notify_2_1": [OpenRun("already running, started by anna")]}
        )
        unable = registry.explained(ALERT, may_run=False, open_runs={})
    assert offered == ["Notify_2_1"]
    assert [(o.name, o.verdict, o.reasons, o.open_run) for o in explained] == [
        ("BlockHost_1_0", "cannot_run", ["TLP:RED is above the TLP:AMBER that it may see"], None),
        ("Notify_2_1", "can_run", [], "already running, started by anna"),
    ]
    assert explained[0].policy is not None
    assert (explained[0].policy.confirm, explained[0].policy.approval) == ("It cuts the host off.", 1)
    assert {o.verdict for o in unable} == {"cannot_run"}


@pytest.mark.parametrize("local", [True, False])
async def test_maxima_of_the_settings_hold_on_every_engine(tmp_path: Path, local: bool) -> None:
    """The first is a server that names no maxima, or an own definition without checks."""
    engine = ScriptedEngine(offered=[NOTIFY, BLOCK_HOST], local=local)
    sections = {
        NOTIFY.name: ResponderSection(max_tlp=1, max_pap=0),
        BLOCK_HOST.name: ResponderSection(max_tlp=3, max_pap=3),  # its own are lower
    }
    verdicts = {
        (0, 0): [],
        (2, 0): ["TLP:AMBER is above the TLP:GREEN that it may see"],
        (1, 1): ["PAP:GREEN is above the PAP:CLEAR that it may see"],
    }
    async with opened(tmp_path / "core.db") as database:
        registry = Registry([engine], sections, database, SetClock())
        await registry.open()
        for (tlp, pap), reasons in verdicts.items():
            target = replace(ALERT, tlp=tlp, pap=pap)
            explained = {one.name: one.reasons for one in registry.explained(target, may_run=True, open_runs={})}
            assert explained == {BLOCK_HOST.name: [], NOTIFY.name: reasons}
            assert (NOTIFY.name in registry.names_for("alert", "", tlp, pap)) == (not reasons)
            assert (NOTIFY.name in [one.name for one in registry.offered(target)]) == (not reasons)
            assert bool(registry.why_not(target, NOTIFY.name, "local")) == bool(reasons)
            if reasons:
                with pytest.raises(ResponderBotError, match="that it may see"):
                    registry.choose(target, NOTIFY.name, None)
        assert BLOCK_HOST.name not in [one.name for one in registry.offered(RED)]
        await registry.close()


async def test_what_nobody_expected_of_a_catalogue_shows_and_core_starts(tmp_path: Path) -> None:
    odd = replace(BLOCK_HOST, code=b"no JSON")  # type: ignore[arg-type]
    engines = [ScriptedEngine("one", [odd]), ScriptedEngine("two", [NOTIFY])]
    with capture_logs() as logged:
        async with opened_registry(tmp_path, engines) as registry:
            offered = registry.offered(ALERT)
    assert NOTIFY.name in [one.name for one in offered]
    assert [entry["work"] for entry in logged if entry["event"] == "work_failed"] == ["responders of one"]


async def test_a_run_goes_to_the_first_engine_that_is_up(tmp_path: Path) -> None:
    engines = [ScriptedEngine("one", [BLOCK_HOST]), ScriptedEngine("two", [BLOCK_HOST])]
    async with opened_registry(tmp_path, engines) as registry:
        engines[0].down = "Connection refused"
        await registry.refresh()
        chosen = registry.choose(ALERT, "BlockHost_1_0", None)
        still_listed = registry.offered(ALERT)[0].engine_ids
        engines[0].down = ""
        await registry.refresh()
        back = registry.choose(ALERT, "BlockHost_1_0", None)
    assert chosen.engine_name == "two"
    assert still_listed == ["one", "two"]
    assert back.engine_name == "one"


async def test_an_engine_that_is_down_at_start_offers_its_stored_catalogue(tmp_path: Path) -> None:
    async with opened_registry(tmp_path, [ScriptedEngine("one", [BLOCK_HOST])]):
        pass
    async with opened_registry(tmp_path, [ScriptedEngine("one", down="Connection refused")]) as registry:
        assert [o.name for o in registry.offered(ALERT)] == ["BlockHost_1_0"]
        explained = registry.explained(ALERT, may_run=True, open_runs={})
        assert [(state.up, state.message) for state in registry.states()] == [(False, "Connection refused")]
    assert explained[0].reasons == ["its engine one does not answer"]
    async with opened(tmp_path / "core.db") as database:
        doc = await database.read(lambda reads: catalogue_of(reads, "", "one")) or ""
    for unusable in (doc.replace('"max_tlp"', '"limit_of_another_release": 1, "max_tlp"'), doc[:99]):
        async with opened(tmp_path / "core.db") as database:
            await database.transaction(methodcaller("run", "UPDATE host_catalogue SET doc = :doc", {"doc": unusable}))
        async with opened_registry(tmp_path, [ScriptedEngine("one", down="Connection refused")]) as registry:
            assert registry.offered(ALERT) == []


@pytest.mark.parametrize("arguments", [("Nothing_1_0", None), ("Notify_2_1", "moon")])
async def test_an_unknown_responder_or_engine_is_not_found(tmp_path: Path, arguments: tuple[str, str | None]) -> None:
    async with opened_registry(tmp_path, [ScriptedEngine()]) as registry:
        with pytest.raises(ResponderBotError, match="not found") as caught:
            registry.choose(ALERT, *arguments)
    assert caught.value.code == "not_found"


@given(st.sampled_from(KINDS), st.sampled_from(["", "thehive:", "TheHive:", "x:y:"]), st.booleans())
def test_a_kind_is_compared_without_case_and_product_prefix(kind: str, product: str, upper: bool) -> None:
    written = f"{product}{kind.upper() if upper else kind}"
    assert applies([written], next(k for k in KINDS if k == kind))
    assert not applies([written], next(k for k in KINDS if k != kind))


def test_responders_are_sorted_by_name() -> None:
    assert list(merge([("one", Catalogue((NOTIFY, BLOCK_HOST)))])) == ["BlockHost_1_0", "Notify_2_1"]


async def test_threads_read_whole_lists_while_these_change(tmp_path: Path) -> None:
    offered = [replace(BLOCK_HOST, id=f"r-{number}", name=f"R{number}_1_0") for number in range(100)]
    last, done = offered[-1], threading.Event()
    engine = ScriptedEngine(offered=offered)

    def read(registry: Registry) -> int:
        times = 0
        while not done.is_set():
            assert registry.name(last.id) == last.name
            for offer in registry.all():
                registry.parameters(offer)
            times += 1
        return times

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        async with opened_registry(tmp_path, [engine]) as registry:
            reading = asyncio.create_task(asyncio.to_thread(read, registry))
            for number in range(60):
                engine.offered = offered if number % 2 else [last, NOTIFY]
                await registry.refresh()
            done.set()
            assert await reading
    finally:
        done.set()
        sys.setswitchinterval(interval)


async def test_settings_of_an_unknown_responder_are_reported(tmp_path: Path) -> None:
    """A confirmation or an approval under a misspelt name would silently be missing."""
    engine = ScriptedEngine()
    policies = {"BLOCKHOST_1_0": ResponderSection(), "BlokHost_1_0": ResponderSection(approval=1)}
    async with opened(tmp_path / "core.db") as database:
        registry = Registry([engine], policies, database, SetClock())
        before = registry.settings_problems()
        with capture_logs() as logged:
            await registry.open()
            problems = registry.settings_problems()
            await registry.close()
    assert before == []
    assert problems == [
        'The settings\' [responder."BlokHost_1_0"] names no responder that an engine knows;'
        ' did you mean "BlockHost_1_0"?'
    ]
    assert [line["reason"] for line in logged if line["event"] == "settings_invalid"] == problems


def test_settings_of_an_unknown_item_are_reported() -> None:
    """A misspelt item, such as `max_tlp`, would silently be missing."""
    local = replace(NOTIFY, items=("url", "max_tlp"))
    broken = Skipped("Broken", "Broken.json: the file is not valid JSON.")
    unfit = Skipped("Mail_1_0", "Mail.json: ...", replace(NOTIFY, name="Mail_1_0", items=("smtp_host",)))
    catalogues = [Catalogue((local,), (broken, unfit)), Catalogue((NOTIFY, BLOCK_HOST))]
    sections = {
        "NOTIFY_2_1": ResponderSection(config={"URL": "http://127.0.0.1", "max_tpl": 1}),
        "Mail_1_0": ResponderSection(config={"colour": "red"}),
        "BlockHost_1_0": ResponderSection(config={"url": "x"}, approval=1),
        "Broken": ResponderSection(config={"nobody": "knows"}),
    }
    assert settings_problems(sections, catalogues) == [
        'The settings\' [responder."NOTIFY_2_1"] config names an item "max_tpl" that the responder does not have;'
        ' did you mean "max_tlp"?',
        'The settings\' [responder."Mail_1_0"] config names an item "colour" that the responder does not have;'
        " there are smtp_host.",
        'The settings\' [responder."BlockHost_1_0"] config does nothing: only a remote engine has that responder;'
        " set it there.",
    ]
    assert settings_problems(sections, catalogues, is_complete=False) == []


async def test_a_responder_that_is_not_configured_is_explained_also_while_its_engine_is_down(tmp_path: Path) -> None:
    missing = Skipped("Mail_1_0", "/srv/Mail.json: ...", replace(NOTIFY, name="Mail_1_0"), "not configured: to missing")
    elsewhere = Skipped("Block_1_0", "...", replace(BLOCK_HOST, data_types=("thehive:case",)), "not configured")
    offered_elsewhere = Skipped(NOTIFY.name, "...", NOTIFY, "not configured")
    engine = ScriptedEngine(left_out=(missing, elsewhere, offered_elsewhere, Skipped("Broken", "...")))
    for engine.down in ("", "It sleeps."):
        async with opened_registry(tmp_path, [engine]) as registry:
            explained = registry.explained(ALERT, may_run=True, open_runs={})
            assert [o.name for o in registry.offered(ALERT)] == ["BlockHost_1_0", "Notify_2_1"]
            with pytest.raises(ResponderBotError, match="not configured: to missing"):
                registry.choose(ALERT, "Mail_1_0", None)
        assert [o.name for o in explained] == ["BlockHost_1_0", "Mail_1_0", "Notify_2_1"]
        assert (explained[1].verdict, explained[1].reasons) == ("cannot_run", ["not configured: to missing"])


async def test_of_two_responders_with_one_id_or_name_on_an_engine_the_first_counts(tmp_path: Path) -> None:
    same_id = replace(NOTIFY, id=BLOCK_HOST.id, name="Another_1_0")
    same_name = replace(BLOCK_HOST, id="r-second")
    engine = ScriptedEngine("soc", [BLOCK_HOST, same_id, same_name, NOTIFY])
    for _ in range(2):  # the second time with the stored catalogue
        async with opened_registry(tmp_path, [engine]) as registry:
            offered = [(one.id, one.name, one.engine_ids) for one in registry.offered(ALERT)]
            chosen = [registry.choose(ALERT, key, None).responder for key in (BLOCK_HOST.id, BLOCK_HOST.name)]
            reasons = {}
            for key in (same_id.name, same_name.id):
                with pytest.raises(ResponderBotError) as caught:
                    registry.choose(ALERT, key, None)
                reasons[key] = caught.value.code
            left_out = [skipped.reason for _, skipped in registry.skipped()]
        assert offered == [("r-block", "BlockHost_1_0", ["soc"]), ("r-notify", "Notify_2_1", ["soc"])]
        assert chosen == [BLOCK_HOST, BLOCK_HOST]
        assert reasons == {"Another_1_0": "bad_request", "r-second": "not_found"}
        assert left_out == [
            "Another responder of this engine, BlockHost_1_0, has the same id and comes first.",
            "Another responder of this engine, BlockHost_1_0, has the same name and comes first.",
        ]
        engine.down = "Connection refused"


async def test_an_id_used_by_two_engines_means_the_first_engine_s_responder(tmp_path: Path) -> None:
    later = replace(NOTIFY, id=BLOCK_HOST.id, name="Zebra_1_0")  # sorts last
    async with opened_registry(
        tmp_path, [ScriptedEngine("one", [BLOCK_HOST]), ScriptedEngine("two", [later])]
    ) as registry:
        by_id, by_name = (registry.choose(ALERT, key, None) for key in (BLOCK_HOST.id, later.name))
    assert (by_id.responder, by_name.responder) == (BLOCK_HOST, later)


async def test_running_an_unusable_responder_is_refused_with_the_reason(tmp_path: Path) -> None:
    reason = "not configured: url missing"
    skipped = Skipped("BlockHost_1_0", "/srv/x.json: url", BLOCK_HOST, reason)
    unread = Skipped("Broken_1_0", "/srv/y.json: no JSON")
    engines = [ScriptedEngine("one", [NOTIFY], left_out=(skipped, unread)), ScriptedEngine("two", [BLOCK_HOST])]
    async with opened_registry(tmp_path, engines) as registry:
        found = registry.choose(ALERT, "BlockHost_1_0", None).engine_name
        messages = []
        for key, engine in (("r-block", "one"), ("BlockHost_1_0", "one"), ("Broken_1_0", None)):
            with pytest.raises(ResponderBotError) as caught:
                registry.choose(ALERT, key, engine)
            assert caught.value.code == "bad_request"
            messages.append(caught.value.message)
        with pytest.raises(ResponderBotError, match="Responder Broken_1_0 not found"):
            registry.choose(ALERT, "Broken_1_0", "two")
    assert found == "two"
    assert messages == [
        "BlockHost_1_0 can't run on the engine one: not configured: url missing.",
        "BlockHost_1_0 can't run on the engine one: not configured: url missing.",
        "Broken_1_0 can't run on the engine one: it can't be used; `responder-bot responders list` says why.",
    ]
