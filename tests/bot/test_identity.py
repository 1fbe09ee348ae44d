"""Who is who: by link, by e-mail only when that is allowed, remembered for ten seconds."""

from pathlib import Path
from typing import Any

import pytest

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


async def test_a_linked_person_is_known_and_a_change_counts_after_ten_seconds(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        clock = Clock()
        who = identity(env, clock)
        anna = await who.person("T0LOCAL", ANNA)
        assert anna is not None
        assert (anna.login, anna.profile, anna.clearance) == ("anna@responder-bot.local", "analyst", 2)
        await env.core.core.access.unlink("anna")
        assert await who.person("T0LOCAL", ANNA) == anna
        clock.ahead_ms = 10_001
        assert await who.person("T0LOCAL", ANNA) is None


async def test_the_same_id_in_another_team_is_nobody(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        assert await identity(env, Clock()).person("T0OTHER", ANNA) is None


async def test_an_e_mail_address_links_nobody_unless_it_may(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        await env.core.core.access.add("nina", "analyst")
        assert await identity(env, Clock()).person("T0LOCAL", NINA) is None
        nina = await identity(env, Clock(), link_by_email=True).person("T0LOCAL", NINA)
        assert nina is not None
        assert nina.login == "nina@responder-bot.local"


async def test_an_unknown_e_mail_address_is_nobody(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env:
        assert await identity(env, Clock(), link_by_email=True).person("T0LOCAL", NINA) is None


@pytest.mark.parametrize(
    "account",
    [
        {"is_email_confirmed": False},
        {"is_email_confirmed": None},
        {"deleted": True},
        {"is_bot": True},
        {"is_restricted": True},
        {"is_restricted": True, "is_ultra_restricted": True},
        {"team_id": "T0OTHER"},
    ],
    ids=lambda account: " ".join(account),
)
async def test_an_address_links_only_a_full_member_of_the_team_who_has_confirmed_it(
    tmp_path: Path, account: dict[str, Any]
) -> None:
    async with running_bot(tmp_path) as env:
        await env.core.core.access.add("nina", "org-admin")
        nina: dict[str, Any] = {"name": "nina", "email": "nina@responder-bot.local"}
        env.emulator.add_user("U0FALSE", **nina, **account)
        env.emulator.add_user("U0TRUE", **nina)
        who = identity(env, Clock(), link_by_email=True)
        assert await who.person("T0LOCAL", "U0FALSE") is None
        assert await who.person("T0OTHER", "U0TRUE") is None
        assert await who.person("T0LOCAL", "U0GONE") is None  # Slack knows no such user
        true = await who.person("T0LOCAL", "U0TRUE")
    assert true is not None
    assert true.login == "nina@responder-bot.local"
