"""`/health` and `/metrics`."""

import asyncio
import re
import resource
from pathlib import Path

import httpx
import psycopg
import pytest

from core.api.http.health import StoreProbe, strip_paths
from core.app import confinement_parts, paths_of
from core.common.database.sqlite.database import FILE_CHECK_EVERY_S
from core.common.settings_file import Sections
from core.engines import make
from core.engines.confinement import unavailable
from core.models import Check, HealthModel
from core.settings import EngineSection, ResponderSection, core_settings
from tests import programs, stores
from tests.core.running import ended, made, running_core

ALERT = {"type": "siem", "source": "wazuh", "sourceRef": "1", "title": "Look", "description": "here"}
NAME = "ResponderBot_CloseAsFalsePositive_1_0"


async def test_health_is_ok_without_a_key(tmp_path: Path) -> None:
    async with running_core(tmp_path, core={"confinement": "landlock"}) as core:
        response = await core.send("GET", "/health", profile=None)
    assert response.status_code == 200
    found = response.json()
    is_confined = not unavailable()
    assert found["status"] == ("ok" if is_confined else "degraded")
    parts = [("store", True), ("engine local", True), ("confinement", is_confined)]
    assert [(part["name"], part["ok"]) for part in found["parts"]] == parts


async def test_health_says_how_programs_are_confined(tmp_path: Path) -> None:
    async with running_core(tmp_path, core={"confinement": "none"}) as core:
        found = (await core.send("GET", "/health", profile=None)).json()
    assert found["parts"][-1] == {
        "name": "confinement",
        "ok": True,
        "message": "off by [core] confinement: responders run with all rights of core's account",
    }


async def test_health_says_which_programs_run_under_bwrap_and_whether_it_works(tmp_path: Path) -> None:
    sections = {"Mailer_1_0": ResponderSection(confinement="bwrap")}
    async with running_core(tmp_path, core={"confinement": "none"}, responder=sections) as core:
        found = (await core.send("GET", "/health", profile=None)).json()
    reason = unavailable("bwrap")
    assert found["parts"][-1] == {
        "name": "confinement",
        "ok": not reason,
        "message": reason or "not confined; bwrap: Mailer_1_0",
    }


@pytest.mark.parametrize(
    ("table", "status", "name", "sentence"),
    [
        ("action", "degraded", "reads of the store", "answer within 2 s; see what locks its tables or slows it."),
        ("sequence", "down", "store", "take a write within 2 s; see what locks its tables or slows its disk."),
    ],
)
async def test_health_answers_while_a_table_is_locked_and_says_so(
    tmp_path: Path, table: str, status: str, name: str, sentence: str
) -> None:
    with stores.using("postgresql"):
        async with running_core(tmp_path, core={"confinement": "none"}) as core:
            with psycopg.connect(stores.setting(tmp_path / "core.db")) as connection:
                connection.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
                found = (await core.send("GET", "/health", profile=None)).json()
                connection.rollback()
    parts = [(part["name"], part["message"]) for part in found["parts"] if not part["ok"]]
    assert (found["status"], parts) == (status, [(name, f"The store did not {sentence}")])


@pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "confined here")
def test_health_says_if_every_program_could_read_core_s_files(tmp_path: Path) -> None:
    core = {"database": "/usr/local/share/responder-bot/core.db", "confinement": "landlock"}
    settings = core_settings(Sections(tmp_path, "", {"core": core}, {}))
    (part,) = confinement_parts(settings, make(settings))
    assert (part.ok, HealthModel.of([part]).status) == (False, "degraded")
    sentence = "core.db can be read by every responder; move it out of the system's folders."
    assert strip_paths(part.message, paths_of(settings)) == sentence


async def test_an_engine_has_a_summary_and_a_line_for_each_skipped_definition(tmp_path: Path) -> None:
    for name in ("Broken", "Bent", "Burnt", "Bleached", "Bust"):
        (tmp_path / "own" / name).mkdir(parents=True)
        (tmp_path / "own" / name / f"{name}.json").write_text("{")
    engine = EngineSection(name="local", responders=(tmp_path / "own", tmp_path / "gone"))
    sections = {NAME: ResponderSection(config={"colour": "red"})}
    async with running_core(tmp_path, engine=(engine,), responder=sections) as core:
        found = (await core.send("GET", "/health", profile=None)).json()
    _, local, settings, _ = found["parts"]
    short, *lines = local["message"].splitlines()
    assert local["ok"]
    assert short == (
        "2 available, 2 not configured; can't be used: Bent, Bleached, Broken and 2 more"
        " (`responder-bot responders list` says why)"
    )
    assert [line.partition(":")[0] for line in lines if ".json: the file is not usable JSON" in line] == [
        "Bent",
        "Bleached",
        "Broken",
        "Burnt",
        "Bust",
    ]
    assert (found["status"], settings["name"], settings["ok"]) == ("degraded", "responder settings", False)
    folder, item = settings["message"].splitlines()
    assert "gone can't be read" in folder
    assert 'names an item "colour"' in item


async def test_only_an_org_admins_own_key_sees_paths(tmp_path: Path) -> None:
    root = tmp_path / "my responders"
    (root / "Broken").mkdir(parents=True)
    (root / "Broken" / "Broken.json").write_text("{")
    engine = EngineSection(name="local", responders=(root, tmp_path / "gone"))
    async with running_core(tmp_path, engine=(engine,)) as core:
        await core.key("org-admin")
        texts = {}
        for profile in (None, "read-only", "analyst", "service", "source", "org-admin"):
            texts[profile] = (await core.send("GET", "/health", profile=profile)).text
        acting = {"X-On-Behalf-Of": "org-admin"}
        texts["on behalf"] = (await core.send("GET", "/health", profile="service", headers=acting)).text
        texts["wrong"] = (await core.send("GET", "/health", profile=None, headers={"Authorization": "Bearer x"})).text
        texts["alias"] = (await core.send("GET", "/api/health", profile="analyst")).text
        metrics = (await core.send("GET", "/metrics", profile=None)).text
    shown = texts.pop("org-admin")
    assert f"{root}/Broken/Broken.json: the file is not usable JSON" in shown
    assert f"{tmp_path}/gone can't be read" in shown
    assert len(set(texts.values())) == 1
    assert "Broken: Broken/Broken.json: the file is not usable JSON" in texts[None]
    assert "gone can't be read" in texts[None]
    assert re.findall(r"(?<![\w:/])/[a-z]+/", str(texts[None])) == []
    assert str(tmp_path) not in texts[None] + metrics


@pytest.mark.parametrize(
    ("sentence", "named"),
    [
        ("[Errno 2] No such file or directory: '/srv/a b/x.db'", "[Errno 2] No such file or directory: 'x.db'"),
        ("The file /srv/secret/x.db is full; see /srv/secret.", "The file x.db is full; see secret."),
        ("/opt/a b/x.json: wrong, /opt/a b can't be read", "x.json: wrong, a b can't be read"),
        ("/var/opt/a b/x", "a b/x"),
        ("https://soc.example.org/api/x answers 500 and 3/4", "https://soc.example.org/api/x answers 500 and 3/4"),
        ("either/or, 10 / 2", "either/or, 10 / 2"),
        ("`/x/y/python -m pip` (/x/y/z)", "`python -m pip` (z)"),
        ("/a" * 50_000, "a"),
    ],
)
def test_strip_paths_replaces_paths_only(sentence: str, named: str) -> None:
    assert strip_paths(sentence, [Path("/opt/a b")]) == named


async def test_an_engine_that_is_down_degrades_core_but_does_not_stop_it(tmp_path: Path) -> None:
    engines = (
        EngineSection(name="local"),
        EngineSection(name="soc", type="cortex", url="http://127.0.0.1:9", api_key="k"),
    )
    async with running_core(tmp_path, engine=engines) as core:
        response = await core.send("GET", "/health", profile=None)
        metrics = (await core.send("GET", "/metrics", profile=None)).text
        ready = await core.http.get("/readyz")
    assert (ready.status_code, ready.json()) == (200, {"status": "ok"})
    assert (response.status_code, response.json()["status"]) == (200, "degraded")
    soc = response.json()["parts"][-2]
    assert (soc["name"], soc["ok"]) == ("engine soc", False)
    assert soc["message"]
    assert 'responder_bot_engine_up{engine="local"} 1.0' in metrics
    assert 'responder_bot_engine_up{engine="soc"} 0.0' in metrics


def test_only_a_vital_component_makes_core_down() -> None:
    fine, ill = Check("a", True), Check("b", False, "why")
    assert HealthModel.of([fine]).status == "ok"
    assert HealthModel.of([fine, ill]).status == "degraded"
    assert HealthModel.of([ill, Check("store", False, is_vital=True)]).status == "down"


async def test_a_store_that_cannot_be_written_is_reported_until_it_can(tmp_path: Path) -> None:
    times = iter([float(number) for number in range(100)])
    async with stores.opened(tmp_path / "core.db") as database:
        probe = StoreProbe(database, lambda: next(times))
        assert (await probe.check()).ok
        await database.transaction(lambda tx: tx.run("ALTER TABLE sequence RENAME TO hidden"))
        ill = await probe.check()
        assert (ill.ok, ill.is_vital) == (False, True)
        assert "The store can't be written" in ill.message
        await database.transaction(lambda tx: tx.run("ALTER TABLE hidden RENAME TO sequence"))
        assert (await probe.check()).ok


async def test_a_store_that_is_down_is_a_503(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        await core.core.database.transaction(lambda tx: tx.run("ALTER TABLE sequence RENAME TO hidden"))
        response = await core.send("GET", "/health", profile=None)
        ready, alive = [await core.http.get(path) for path in ("/readyz", "/livez")]
    assert (response.status_code, response.json()["status"]) == (503, "down")
    assert (ready.status_code, alive.status_code) == (503, 200)
    assert "The store can't be written" in ready.json()["message"]


@pytest.mark.sqlite
async def test_a_store_that_cannot_be_read_is_a_503_also_where_rules_are_read_from_it(tmp_path: Path) -> None:
    sections = {NAME: ResponderSection(run_by=["@containment"])}
    async with running_core(tmp_path, responder=sections) as core:
        (tmp_path / "core.db").unlink()
        await asyncio.sleep(FILE_CHECK_EVERY_S * 2)  # until the files are due for a check
        response = await core.send("GET", "/health", profile=None)
    assert (response.status_code, response.json()["status"]) == (503, "down")


async def test_metrics_cover_requests_actions_and_the_store(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        alert = (await core.send("POST", "/api/alert", ALERT)).json()
        body = {"responderId": NAME, "objectType": "alert", "objectId": alert["id"]}
        await ended(core, (await made(core, "/api/connector/engine/action", body))["id"])
        await core.send("GET", "/api/event?after=0")
        await core.send("GET", "/api/secret-looking/address")
        response = await core.send("GET", "/metrics", profile=None)
    assert response.headers["content-type"].startswith("text/plain")
    text = response.text
    assert 'responder_bot_requests_total{method="POST",route="/api/alert",status="201"} 1.0' in text
    assert 'responder_bot_requests_total{method="GET",route="none",status="404"} 1.0' in text
    assert f'responder_bot_actions{{responder="{NAME}",status="Success"}} 1.0' in text
    assert "responder_bot_queue 0.0" in text
    for name in ("event_lag_seconds", "store_bytes", "store_write_seconds", "request_seconds_bucket"):
        assert f"responder_bot_{name}" in text
    assert alert["id"] not in text
    assert "secret-looking" not in text


async def test_metrics_count_commits_and_requests_under_names_that_clients_cannot_choose(tmp_path: Path) -> None:
    def value(text: str, name: str) -> float:
        return float(next(line for line in text.splitlines() if line.startswith(f"responder_bot_{name} ")).split()[-1])

    async with running_core(tmp_path) as core:
        await core.key("org-admin")
        before, commits = (await core.send("GET", "/metrics")).text, core.core.database.commits
        for number in range(3):
            await core.send("POST", "/api/alert", {**ALERT, "sourceRef": str(number)})
        await core.send("POST", "/api/alert", {**ALERT, "sourceRef": "0"})  # exists already
        await core.send("GET", "/api/alert")
        await core.send("PURGE", "/api/alert")
        assert core.core.database.commits == commits + 3
        text = (await core.send("GET", "/metrics")).text
    assert value(text, "store_commits_total") - value(before, "store_commits_total") in (3, 4)  # the probe may add one
    assert 'responder_bot_requests_total{method="POST",route="/api/alert",status="201"} 3.0' in text
    assert 'responder_bot_requests_total{method="other",route="none",status="405"} 1.0' in text
    assert "_created" not in text
    assert "PURGE" not in text


async def test_metrics_ask_for_their_token_where_one_is_set(tmp_path: Path) -> None:
    async with running_core(tmp_path, core={"metrics_token": "s3cret"}) as here:
        org_admin = await here.key("org-admin")
        for sent in ({}, {"Authorization": "Bearer s3cre"}, {"Authorization": f"Bearer {org_admin}"}):
            refused = await here.http.get("/metrics", headers=sent)
            assert (refused.status_code, refused.json()["type"]) == (401, "AuthenticationError")
        shown = await here.http.get("/metrics", headers={"Authorization": "Bearer s3cret"})
        assert (shown.status_code, "responder_bot_store_up 1.0" in shown.text) == (200, True)
        assert (await here.http.get("/api/user/current", headers={"Authorization": "Bearer s3cret"})).status_code == 401
        assert (await here.http.get("/health")).status_code == 200


@pytest.mark.sqlite
async def test_a_missing_database_file_is_down(tmp_path: Path) -> None:
    async with running_core(tmp_path) as here:
        (tmp_path / "core.db").rename(tmp_path / "elsewhere.db")
        answer = await here.http.get("/health")
        ready = await here.http.get("/readyz")
    store = answer.json()["parts"][0]
    assert (answer.status_code, answer.json()["status"]) == (503, "down")
    assert (store["name"], store["ok"]) == ("store", False)
    assert "was removed or replaced" in store["message"]
    assert ready.json()["message"] == store["message"]
    assert str(tmp_path) not in answer.text + ready.text


@pytest.mark.sqlite
async def test_a_full_disk_is_down_and_refuses_writes_with_a_503(tmp_path: Path) -> None:
    async with running_core(tmp_path) as made:
        key = await made.key("org-admin")
    full = await programs.start(
        *("core.cli", "core"),
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "RESPONDER_BOT_CORE_PORT": "0", "RESPONDER_BOT_CORE_DATABASE": "core.db"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert full.stdout is not None
    url = (await full.stdout.readline()).decode().removeprefix("core: ").strip()
    resource.prlimit(full.pid, resource.RLIMIT_FSIZE, (0, 0))
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers) as http:
        health = await http.get("/health")
        refused = await http.post("/api/alert", json=ALERT)
        read = await http.get("/api/user/current")
        listed = await http.post("/api/alert/_search", json={})
        metrics = await http.get("/metrics")
    full.terminate()
    await full.communicate()
    assert (health.status_code, health.json()["status"]) == (503, "down")
    assert (refused.status_code, refused.json()["type"], refused.headers["retry-after"]) == (
        503,
        "UnavailableError",
        "1",
    )
    assert "can't be written" in refused.json()["message"]
    assert (read.status_code, listed.json(), metrics.status_code) == (200, [], 200)
