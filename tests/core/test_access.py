"""Nobody gets in without a key, and nobody does more than their profile says."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.access import Access, parse_slack_id
from core.common.database.sqlite import Database
from core.common.errors import ResponderBotError
from tests.clock import SetClock
from tests.core.store.test_database import opened


def access(database: Database) -> Access:
    return Access(database, "responder-bot.local", SetClock())


async def test_a_key_opens_and_is_not_in_the_file(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        key = await access(database).add("Anna", "analyst")
        caller = access(database).authenticate(key)
        kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert (caller.login, caller.key_owner) == ("anna@responder-bot.local", "anna@responder-bot.local")
    assert caller.permissions == {"manageAction", "manageAlert", "manageCase", "manageTask"}
    assert len(key) >= 43
    assert key.encode() not in kept


async def test_a_disabled_user_and_an_old_key_are_out_at_once(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        users = access(database)
        first = await users.add("anna", "analyst")
        second = await users.new_key("anna")
        with pytest.raises(ResponderBotError, match="Authentication failure"):
            users.authenticate(first)
        await users.disable("anna")
        with pytest.raises(ResponderBotError, match="Authentication failure") as caught:
            users.authenticate(second)
    assert caught.value.code == "authentication"


async def test_a_key_with_somebody_elses_login_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        users = access(database)
        key = await users.add("anna", "analyst")
        await users.add("ben", "analyst")
        assert users.authenticate(key, login="ANNA").login == "anna@responder-bot.local"
        with pytest.raises(ResponderBotError, match="Authentication failure"):
            users.authenticate(key, login="ben")


async def test_acting_for_somebody_needs_the_right_and_a_person(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        users = access(database)
        bot = users.authenticate(await users.add("bot", "service"))
        anna = users.authenticate(await users.add("anna@example.org", "org-admin"))
        await users.add("other-bot", "service")
        await users.add("gone", "analyst")
        await users.disable("gone")

        acting = users.on_behalf_of(bot, "Anna@Example.org")
        assert (acting.login, acting.key_owner) == ("anna@example.org", "bot@responder-bot.local")
        assert acting.may("manageCaseTemplate")
        assert not acting.may("manageUser")
        for caller, name in [(anna, "bot"), (bot, "other-bot"), (bot, "gone"), (bot, "nobody")]:
            with pytest.raises(ResponderBotError) as caught:
                users.on_behalf_of(caller, name)
            assert caught.value.code == "forbidden"
        assert caught.value.message == "User nobody@responder-bot.local is unknown or disabled"


async def test_a_slack_person_is_one_user(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        users = access(database)
        await users.add("anna", "analyst", clearance=3)
        await users.add("ben", "analyst")
        await users.link("anna", "T1:U1")
        assert users.person_by_slack("T1", "U1").login == "anna@responder-bot.local"
        assert users.person_by_slack("T1", "U1").clearance == 3
        for name, slack_id in [("ben", "T1:U1"), ("anna", "U2")]:
            with pytest.raises(ResponderBotError) as caught:
                await users.link(name, slack_id)
            assert caught.value.code == "exists"
        with pytest.raises(ResponderBotError, match="No user is linked"):
            users.person_by_slack("T2", "U1")
        await users.unlink("anna")
        with pytest.raises(ResponderBotError, match="No user is linked"):
            users.person_by_slack("T1", "U1")


async def test_a_user_whose_slack_id_is_taken_is_not_added(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as database:
        users = access(database)
        await users.add("anna", "analyst", slack_id="U1")
        for slack_id in ("U1", "T1:U1"):
            with pytest.raises(ResponderBotError, match=r"is linked to anna@responder-bot\.local already") as caught:
                await users.add("ben", "analyst", slack_id=slack_id)
            assert caught.value.code == "exists"
        assert [row["login"] for row in users.list_users()] == ["anna@responder-bot.local"]


@given(st.text())
def test_any_text_is_a_slack_id_or_refused_with_a_sentence(text: str) -> None:
    try:
        team, slack_user = parse_slack_id(text)
    except ResponderBotError as error:
        assert error.code == "bad_request"
    else:
        assert slack_user[0] in "UW"
        assert team == "" or team[0] in "TE"
