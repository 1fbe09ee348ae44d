"""Users, keys, permissions and links to Slack."""

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.authorization import COMMAND_LINE
from core.common.clock import now_ms
from core.common.database import Database
from core.common.errors import ResponderBotError
from core.people import People, parse_slack_id
from tests.clock import SetClock
from tests.core.test_cli import is_one_sentence, run
from tests.stores import opened


def people(database: Database) -> People:
    return People(database, "responder-bot.local", SetClock())


async def test_a_key_authenticates_and_is_stored_only_as_a_hash(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        key = await people(database).add("Anna", "analyst")
        caller = await people(database).authenticate(key)
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert (caller.login, caller.acted_through) == ("anna@responder-bot.local", "anna@responder-bot.local")
    assert caller.permissions == {"manageAction", "manageAlert", "manageCase", "manageTask"}
    assert len(key) >= 43
    assert key.encode() not in kept


async def test_processes_on_one_database_have_a_temporary_key_each(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        one, another = people(database), people(database)
        first = await one.temporary_key("bot", "service")
        second = await another.temporary_key("bot", "service")
        assert {(await one.authenticate(first)).login, (await another.authenticate(second)).login} == {
            "bot@responder-bot.local"
        }
        for users, key in ((one, second), (another, first), (people(database), first)):
            with pytest.raises(ResponderBotError, match="Authentication failure"):
                await users.authenticate(key)
        await another.disable(COMMAND_LINE, "bot")
        with pytest.raises(ResponderBotError, match="Authentication failure"):
            await one.authenticate(first)


async def test_a_slack_id_belongs_to_one_user(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        users = people(database)
        await users.add("anna", "analyst", clearance=3)
        await users.add("ben", "analyst")
        await users.link("anna", "T1:U1")
        assert (await users.person_by_slack("T1", "U1")).login == "anna@responder-bot.local"
        assert (await users.person_by_slack("T1", "U1")).clearance == 3
        for name, slack_id in [("ben", "T1:U1"), ("anna", "U2")]:
            with pytest.raises(ResponderBotError) as caught:
                await users.link(name, slack_id)
            assert caught.value.code == "exists"
        with pytest.raises(ResponderBotError, match="No user is linked"):
            await users.person_by_slack("T2", "U1")
        await users.unlink("anna")
        with pytest.raises(ResponderBotError, match="No user is linked"):
            await users.person_by_slack("T1", "U1")


async def test_a_user_whose_slack_id_is_taken_is_not_added(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        users = people(database)
        await users.add("anna", "analyst", slack_id="U1")
        for slack_id in ("U1", "T1:U1"):
            with pytest.raises(ResponderBotError, match=r"is linked to anna@responder-bot\.local already") as caught:
                await users.add("ben", "analyst", slack_id=slack_id)
            assert caught.value.code == "exists"
        assert [user.login for user in await users.all()] == ["anna@responder-bot.local"]


@given(st.text() | st.from_regex(r"([TE][^:]*:)?[UW][^:]*", fullmatch=True))
def test_any_text_is_a_slack_id_or_a_bad_request(text: str) -> None:
    try:
        team, slack_user = parse_slack_id(text)
    except ResponderBotError as error:
        assert error.code == "bad_request"
    else:
        for part, first in ((slack_user, "UW"), (team or "T0", "TE")):  # others nobody can have
            assert len(part) > 1
            assert part[0] in first
            assert set(part) <= {*string.ascii_uppercase, *string.digits}


async def test_a_login_that_does_not_fit_into_a_header_is_refused(tmp_path: Path) -> None:
    ended = await run(tmp_path, "user", "add", "a b", "--profile", "analyst")
    assert (ended.code, ended.out) == (2, "")
    assert is_one_sentence(ended.err)
    assert "'a b' can't be a login" in ended.err
    async with opened(tmp_path / "core.db") as database:
        users = People(database, "example.org", now_ms)
        for login in ("", "a@b@c", "@example.org", "a:b", "a\nb", "änna", "x" * 300, "a@"):
            with pytest.raises(ResponderBotError, match="can't be a login"):
                await users.add(login, "analyst")
        await users.add(" Anna.Lead+soc ", "analyst")
        assert [user.login for user in await users.all()] == ["anna.lead+soc@example.org"]
