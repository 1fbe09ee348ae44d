"""Slack users are found by their link, by e-mail only if that is allowed, and cached for ten seconds."""

from pathlib import Path
from typing import Any

from bot.identity import Identity
from core.common.clock import now_ms
from tests.bot.running import ANNA, NINA, BotEnvironment, running_bot


class Clock:
    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return now_ms() + self.ahead_ms


def identity(env: BotEnvironment, clock: Clock, *, link_by_email: bool = False) -> Identity:
    from core.client import CoreClient

    core = CoreClient(env.core.url, env.service_key)
    env._stack.push_async_callback(core.close)
    return Identity(core, env.bot.slack, clock, link_by_email=link_by_email)


async def test_linked_person_is_found_and_cached_for_ten_seconds(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        clock = Clock()
        people = identity(env, clock)
        anna = await people.person("T0LOCAL", ANNA)
        assert anna is not None
        assert (anna.login, anna.profile, anna.clearance) == ("anna@responder-bot.local", "analyst", 2)
        assert await people.person("T0OTHER", ANNA) is None
        await env.core.core.people.unlink("anna")
        assert await people.person("T0LOCAL", ANNA) == anna
        clock.ahead_ms = 10_001
        assert await people.person("T0LOCAL", ANNA) is None


async def test_who_gets_access_is_refused_for_another_second_only(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        clock = Clock()
        people = identity(env, clock)
        assert await people.person("T0LOCAL", NINA) is None
        await env.core.core.people.add("nina", "analyst", slack_id=f"T0LOCAL:{NINA}")
        assert await people.person("T0LOCAL", NINA) is None
        clock.ahead_ms = 1_001
        assert await people.person("T0LOCAL", NINA) is not None


async def test_email_links_nobody_unless_the_settings_allow_it(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        assert await identity(env, Clock(), link_by_email=True).person("T0LOCAL", NINA) is None
        await env.core.core.people.add("nina", "analyst")
        assert await identity(env, Clock()).person("T0LOCAL", NINA) is None
        nina = await identity(env, Clock(), link_by_email=True).person("T0LOCAL", NINA)
        assert nina is not None
        assert nina.login == "nina@responder-bot.local"


UNTRUSTED: tuple[dict[str, Any], ...] = (
    {"is_email_confirmed": False},
    {"is_email_confirmed": None},
    {"deleted": True},
    {"is_bot": True},
    {"is_restricted": True},
    {"is_restricted": True, "is_ultra_restricted": True},
    {"team_id": "T0OTHER"},
)


async def test_only_confirmed_email_of_a_full_member_is_trusted(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        await env.core.core.people.add("nina", "org-admin")
        nina: dict[str, Any] = {"name": "nina", "email": "nina@responder-bot.local"}
        people = identity(env, Clock(), link_by_email=True)
        for number, account in enumerate(UNTRUSTED):
            env.emulator.add_user(f"U0FALSE{number}", **nina, **account)
            assert await people.person("T0LOCAL", f"U0FALSE{number}") is None, account
        # Who is a guest in one workspace of an enterprise is told for that workspace only.
        env.emulator.add_user("U0GRID", **nina, team_id="E0GRID")
        assert await people.person("E0GRID", "U0GRID") is None
        env.emulator.add_user("U0TRUE", **nina)
        assert await people.person("T0OTHER", "U0TRUE") is None
        assert await people.person("T0LOCAL", "U0GONE") is None  # Slack knows no such user
        true = await people.person("T0LOCAL", "U0TRUE")
    assert true is not None
    assert true.login == "nina@responder-bot.local"


async def test_only_an_address_that_can_be_a_login_is_looked_up(tmp_path: Path) -> None:
    """Lower case of the Kelvin sign is a plain k, and a name alone would get the domain of the settings."""
    emails = ("nina", "n\u0131na@responder-bot.local", "\u212aim@responder-bot.local", "n\u00efna@x.example")
    async with running_bot(tmp_path) as env:
        for name in ("nina", "kim"):
            await env.core.core.people.add(name, "org-admin")
        people = identity(env, Clock(), link_by_email=True)
        for number, email in enumerate(emails):
            env.emulator.add_user(f"U0FALSE{number}", name="nina", email=email)
            assert await people.person("T0LOCAL", f"U0FALSE{number}") is None, ascii(email)


async def test_nobody_is_linked_by_email_without_the_scope_for_it(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        env.emulator.faults.error("users.info", "missing_scope")
        assert await identity(env, Clock(), link_by_email=True).person("T0LOCAL", NINA) is None
