"""API keys: several for a user, each with a name, an end, a clearance and the addresses that it may come from."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bot import settings as bot_settings
from core.authorization import COMMAND_LINE
from core.common.clock import DAY_MS
from core.common.database import Database
from core.common.errors import AuthenticationError, ResponderBotError
from core.common.tasks import cancel_and_wait, repeat
from core.people import UNUSED_DAYS, People
from core.store import people as stored
from tests.audited import require_rows
from tests.clock import SetClock
from tests.core.core_process import until
from tests.core.running import running_core
from tests.core.test_cli import run
from tests.stores import opened


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    async with opened(tmp_path / "core.db") as opened_database:
        yield await require_rows(opened_database)


async def refusal(people: People, key: str, address: str = "") -> str:
    with pytest.raises(AuthenticationError) as raised:
        await people.authenticate(key, address=address)
    return raised.value.reason


async def test_keys_work_beside_each_other_until_they_end_or_are_revoked(database: Database) -> None:
    clock = SetClock()
    people = People(database, "example.org", clock)
    first = await people.add("anna", "analyst")
    nightly = await people.add_key("anna", "nightly", expires_at=clock() + DAY_MS)
    assert (await people.authenticate(first)).key == "default"
    caller = await people.authenticate(nightly)
    assert (caller.login, caller.key, caller.key_prefix) == ("anna@example.org", "nightly", nightly[:6])
    with pytest.raises(ResponderBotError, match="has a key nightly already"):
        await people.add_key("anna", "nightly")
    clock.now_ms += DAY_MS
    assert await refusal(people, nightly) == "expired"
    assert await people.revoke_key("anna", "nightly") == "anna@example.org"
    assert await refusal(people, nightly) == "unknown"
    with pytest.raises(ResponderBotError, match=r"has no key nightly; `responder-bot key list anna@example.org`"):
        await people.revoke_key("anna", "nightly")
    again = (await people.new_key(COMMAND_LINE, "anna", keep_old=True)).key
    last = (await people.new_key(COMMAND_LINE, "anna", keep_old=True)).key
    assert await refusal(people, first) == "unknown"  # only the last one that was replaced goes on working
    assert (await people.authenticate(again)).key == "replaced"
    assert (await people.authenticate(last)).key == "default"
    await people.new_key(COMMAND_LINE, "anna")
    assert (await refusal(people, again), await refusal(people, last)) == ("unknown", "unknown")


async def test_a_key_comes_only_from_its_addresses(database: Database) -> None:
    people = People(database, "example.org", SetClock())
    await people.add("bot", "service")
    key = await people.add_key("bot", "bound", addresses=["192.0.2.0/24", "2001:db8::1"])
    for address in ("192.0.2.7", "2001:db8::1"):
        assert (await people.authenticate(key, address=address)).key == "bound"
    for address in ("198.51.100.1", "2001:db8::2", ""):
        assert await refusal(people, key, address) == "address"
    for wrong in ("192.0.2.7/24", "somewhere", ""):
        with pytest.raises(ResponderBotError, match="is no address or network"):
            await people.add_key("bot", "wrong", addresses=[wrong])


async def test_a_clearance_of_a_key_also_binds_on_behalf_of_others(database: Database) -> None:
    people = People(database, "example.org", SetClock())
    own = await people.add("anna", "analyst", clearance=3)
    await people.add("bot", "service", clearance=3)
    green = await people.add_key("bot", "green", clearance=1)
    assert (await people.authenticate(own)).sees_up_to == 3
    assert (await people.authenticate(await people.add_key("anna", "green", clearance=1))).sees_up_to == 1
    assert (await people.authenticate(green, on_behalf_of="anna")).sees_up_to == 1


async def test_the_day_of_the_last_use_is_noted_once_and_unused_keys_are_named(database: Database) -> None:
    clock = SetClock()
    people = People(database, "example.org", clock)
    key = await people.add("anna", "analyst")
    await people.add("ben", "analyst")
    before = database.commits
    for _ in range(5):
        await people.authenticate(key)
    for _ in range(2):
        await people.note_uses()
    await people.authenticate(key)
    assert database.commits == before + 1
    (row,) = await people.keys("anna")
    assert row["last_used_day"] == clock() // DAY_MS * DAY_MS
    clock.now_ms += UNUSED_DAYS * DAY_MS
    await people.authenticate(key)
    await people.note_uses()
    clock.now_ms += DAY_MS
    assert await people.unused_keys() == [("ben@example.org", "default")]
    await people.disable(COMMAND_LINE, "ben")
    assert await people.unused_keys() == []
    assert await database.read(lambda reads: stored.keys_of(reads, "nobody@example.org")) == []


async def test_behind_a_proxy_the_address_is_that_of_the_client(tmp_path: Path) -> None:
    proxies = {"trusted_proxies": ["127.0.0.1", "10.0.0.0/8"]}
    async with running_core(tmp_path, core=proxies) as core:
        await core.key("analyst")
        bound = await core.core.people.add_key("analyst", "bound", addresses=["192.0.2.7"])
        for forwarded, status in (
            ("192.0.2.7", 200),
            ("198.51.100.1, 192.0.2.7, 10.0.0.3", 200),
            ("::ffff:192.0.2.7", 200),
            ("192.0.2.7, 198.51.100.1", 401),
            ("192.0.2.7, nonsense", 401),
            ("", 401),
        ):
            headers = {"Authorization": f"Bearer {bound}", "X-Forwarded-For": forwarded}
            answer = await core.send("GET", "/api/user/current", profile=None, headers=headers)
            assert answer.status_code == status, forwarded
        with capture_logs() as lines:
            await core.send("POST", "/api/alert", {}, profile=None, headers={**headers, "X-Forwarded-For": "192.0.2.7"})
        logged = [line for line in lines if line["event"] == "request_answered"]
        assert [(line["address"], line["prefix"]) for line in logged] == [("192.0.2.7", bound[:6])]
        metrics = (await core.send("GET", "/metrics")).text
        assert 'responder_bot_refused_keys_total{reason="address"} 3.0' in metrics
    (tmp_path / "direct").mkdir()
    async with running_core(tmp_path / "direct") as core:
        await core.key("analyst")
        bound = await core.core.people.add_key("analyst", "bound", addresses=["192.0.2.7"])
        headers = {"Authorization": f"Bearer {bound}", "X-Forwarded-For": "192.0.2.7"}
        assert (await core.send("GET", "/api/user/current", profile=None, headers=headers)).status_code == 401


def test_the_bots_key_goes_unencrypted_only_where_that_is_said() -> None:
    for url, more in (
        ("http://127.0.0.1:9000", {}),
        ("http://[::1]:9000", {}),
        ("http://localhost", {}),
        ("https://core.example.org", {}),
        ("http://core.example.org", {"allow_http": True}),
    ):
        assert bot_settings.parse({"bot": {"core_url": url, **more}}, Path()).bot.core_url == url
    for url in ("http://core.example.org", "http://192.0.2.7:9000", "http://127.0.0.1.example.org", "http://0.0.0.0"):
        with pytest.raises(
            ResponderBotError, match=r"goes unencrypted; use https://, or set \[bot\] allow_http = true"
        ):
            bot_settings.parse({"bot": {"core_url": url}}, Path())


async def test_keys_on_the_command_line(tmp_path: Path) -> None:
    await run(tmp_path, "user", "add", "anna", "--profile", "analyst")
    options = ("--expires", "2999-01-31", "--clearance", "green", "--address", "192.0.2.0/24")
    made = await run(tmp_path, "key", "add", "anna", "nightly", *options)
    assert len(made.out.strip()) >= 43
    listed = (await run(tmp_path, "key", "list", "anna")).out
    for part in ("default", "nightly", made.out[:6], "2999-01-31", "green", "192.0.2.0/24", "never"):
        assert part in listed
    assert made.out.strip() not in listed
    revoked = await run(tmp_path, "key", "revoke", "anna", "nightly")
    assert "The key nightly of anna@responder-bot.local no longer works." in revoked.err
    for wrong in (("anna", "x", "--expires", "yesterday"), ("anna", "x", "--expires", "2001-01-01"), ("carl", "x")):
        assert (await run(tmp_path, "key", "add", *wrong)).code == 2


async def test_uses_of_keys_are_noted_after_an_error_that_nobody_expected(database: Database) -> None:
    clock = SetClock()
    people = People(database, "example.org", clock)
    key = await people.add("anna", "analyst")
    today, clock.now_ms = clock(), 2**70  # which is no time
    await people.authenticate(key)
    with capture_logs() as logged:
        task = asyncio.create_task(repeat("uses of keys", 0.01, people.note_uses))
        await until(lambda: logged or None, "an error")
        commits, clock.now_ms = database.commits, today
        await people.authenticate(key)
        await until(lambda: database.commits > commits or None, "a commit")
        await cancel_and_wait(task)
    (row,) = await people.keys("anna")
    assert row["last_used_day"] == today // DAY_MS * DAY_MS
    assert {entry["event"] for entry in logged} == {"work_failed"}
