"""A server can't offer a responder that people or requests take for another, whose rules would not hold for it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from core.common.errors import ResponderBotError
from core.engines.base import Skipped
from core.protection import BLOCK, UNBLOCK
from core.responders.catalogues import distinct_titles, skeleton
from core.responders.registry import Registry
from core.responders.target import Target
from core.settings import OWN_ENGINE, ResponderSection
from tests.clock import SetClock
from tests.core.scripted_engine import BLOCK_HOST, NOTIFY, ScriptedEngine
from tests.stores import opened

ALERT = Target("alert", 1, 1, tlp=2, pap=2, json={})
LOOKALIKES = [
    "BIockHost_1_0",
    "B1ockHost_1_0",
    "BlockH0st_1_0",
    "blockhost_1_0",
    "BlockHost-1.0",
    "BlockHost 1 0",
    "BlockHost_1_0.",
    "BlockHost__1_0",
    "B|ockHost_1_O",
    "Block_Host_1_0",
    "Block_Host_l_O",
    "block host 1.0",
]


@asynccontextmanager
async def opened_registry(folder: Path, engines: Sequence[ScriptedEngine], *named: str) -> AsyncIterator[Registry]:
    async with opened(folder / "core.db") as database:
        registry = Registry(engines, {name: ResponderSection(approval=2) for name in named}, database, SetClock())
        await registry.open()
        try:
            yield registry
        finally:
            await registry.close()


def server(*names: str, engine: str = "soar") -> ScriptedEngine:
    offered = [replace(BLOCK_HOST, id=f"{engine}-{number}", name=name) for number, name in enumerate(names)]
    return ScriptedEngine(engine, offered, local=False)


def names(registry: Registry) -> list[str]:
    return [responder.name for responder in registry.offered(ALERT)]


@pytest.mark.parametrize("name", LOOKALIKES)
async def test_a_name_like_one_of_this_host_is_skipped_with_the_reason(tmp_path: Path, name: str) -> None:
    # The order of the settings doesn't matter.
    async with opened_registry(tmp_path, [server(name, "Other_1_0"), ScriptedEngine()]) as registry:
        assert names(registry) == ["BlockHost_1_0", "Notify_2_1", "Other_1_0"]
        ((engine, skipped),) = registry.skipped()
        explained = {one.name: one.reasons for one in registry.explained(ALERT, may_run=True, open_runs={})}
        with pytest.raises(ResponderBotError, match="it can be taken for BlockHost_1_0") as caught:
            registry.choose(ALERT, name, None)
        assert caught.value.code == "bad_request"
    assert (engine, skipped.name) == ("soar", name)
    reason = "it can be taken for BlockHost_1_0; give it another name on its server"
    assert skipped.reason == f"{name}: {reason}."
    assert explained[name] == [reason]


@pytest.mark.parametrize("name", LOOKALIKES)
async def test_a_name_like_one_that_the_settings_have_rules_for_is_skipped(tmp_path: Path, name: str) -> None:
    async with opened_registry(tmp_path, [server(name, "BlockHost_1_0")], "BlockHost_1_0") as registry:
        # Rules hold for names that differ in case and separators only, so one of them may be the one that is meant.
        assert len(names(registry)) == 1
        assert registry.policy(names(registry)[0]).approval == 2


async def test_the_responder_that_a_section_is_for_stays_also_under_its_name_as_a_variable(tmp_path: Path) -> None:
    async with opened_registry(tmp_path, [server("BlockHost_1_0")], "BLOCKHOST_1_0") as registry:
        assert names(registry) == ["BlockHost_1_0"]
        assert registry.policy("BlockHost_1_0").approval == 2


async def test_a_name_like_one_that_is_not_configured_is_skipped(tmp_path: Path) -> None:
    left_out = (Skipped("BlockHost_1_0", "not configured", BLOCK_HOST),)
    own = ScriptedEngine(offered=[NOTIFY], left_out=left_out)
    async with opened_registry(tmp_path, [own, server("BIockHost_1_0")]) as registry:
        assert names(registry) == ["Notify_2_1"]


async def test_of_two_servers_the_first_of_the_settings_has_the_name(tmp_path: Path) -> None:
    engines = [server("BlockHost_1_0"), server("BIockHost_1_0", "BlockHost_1_0", engine="other")]
    async with opened_registry(tmp_path, engines) as registry:
        (responder,) = registry.offered(ALERT)
        assert (responder.name, responder.engine_ids) == ("BlockHost_1_0", ["soar", "other"])
        assert [(engine, skipped.name) for engine, skipped in registry.skipped()] == [("other", "BIockHost_1_0")]


@pytest.mark.parametrize("is_here", [True, False])
@pytest.mark.parametrize("name", [BLOCK, UNBLOCK])
async def test_core_s_own_responders_have_their_names_alone(tmp_path: Path, name: str, is_here: bool) -> None:
    """Neither a definition on this host nor one on a server takes the place of Block or Unblock."""
    own = [replace(BLOCK_HOST, id=one, name=one) for one in (BLOCK, UNBLOCK)]
    other = ScriptedEngine("soar", [replace(BLOCK_HOST, name=name), NOTIFY], local=is_here)
    async with opened_registry(tmp_path, [other, ScriptedEngine(OWN_ENGINE, own, local=False)]) as registry:
        ((engine, skipped),) = registry.skipped()
        assert (engine, skipped.name) == ("soar", name)
        assert skipped.reason == f"{name}: core has one with this name itself; give it another."
        offered = {responder.name: responder.engine_ids for responder in registry.offered(ALERT)}
    assert offered == {NOTIFY.name: ["soar"], BLOCK: [OWN_ENGINE], UNBLOCK: [OWN_ENGINE]}


async def test_an_id_or_a_name_never_leads_to_another_responder(tmp_path: Path) -> None:
    """Requests name a responder by its id or its name."""
    evil = [
        replace(BLOCK_HOST, id="BlockHost_1_0", name="Evil_1_0"),
        replace(BLOCK_HOST, id=NOTIFY.id, name="Worse_1_0"),
        replace(BLOCK_HOST, id="r-1", name=BLOCK_HOST.id),
    ]
    async with opened_registry(tmp_path, [ScriptedEngine("soar", evil, local=False), ScriptedEngine()]) as registry:
        assert names(registry) == ["BlockHost_1_0", "Notify_2_1"]
        for responder_id in ("BlockHost_1_0", BLOCK_HOST.id):
            assert registry.choose(ALERT, responder_id, None).engine_name == "local"
        assert registry.choose(ALERT, NOTIFY.id, None).merged.name == "Notify_2_1"


async def test_a_lookalike_comes_back_once_the_other_is_gone(tmp_path: Path) -> None:
    own = ScriptedEngine()
    async with opened_registry(tmp_path, [own, server("BIockHost_1_0")]) as registry:
        own.offered = [NOTIFY]
        await registry.refresh()
        assert names(registry) == ["BIockHost_1_0", "Notify_2_1"]
        own.offered = [NOTIFY, BLOCK_HOST]
        await registry.refresh()
        assert names(registry) == ["BlockHost_1_0", "Notify_2_1"]
        assert registry.why_not(ALERT, "BIockHost_1_0", "soar") == "The engine soar no longer offers BIockHost_1_0."


def test_titles_that_look_alike_are_told_apart() -> None:
    own = replace(BLOCK_HOST, name="ResponderBot_BlockHost_1_0", title="Block Host")
    foreign = replace(BLOCK_HOST, name="Evil_BlockH0st_1_0", title="BIock H0st")
    titles = distinct_titles([own, foreign])
    assert titles == {own.name: "Responder Bot Block Host 1.0", foreign.name: "Evil Block H0st 1.0"}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Mailer_1_0", "Mailer_10"),
        ("Mailer_1_1", "Mailer_1_0"),
        ("Mailer_2_1_0", "Mailer_21_0"),
        ("Block_1_0", "Unblock_1_0"),
    ],
)
def test_versions_are_told_apart(one: str, other: str) -> None:
    assert skeleton(one) != skeleton(other)
