"""Groups of core that are kept in step with user groups of Slack."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bot.app.user_groups import EVERY_S, GroupSync
from bot.doctor import checks
from bot.settings import GroupSection, parse
from core.authorization import COMMAND_LINE
from core.client import CoreClient
from core.common.clock import now_ms
from core.common.errors import ResponderBotError
from tests.bot.features.environment import MANIFEST
from tests.bot.running import ANNA, BEN, LEA, NINA, ROB, BotEnvironment, running_bot

S0 = "S0CONTAIN"


async def members(env: BotEnvironment, name: str = "containment") -> list[str]:
    """The first parts of the logins in the group."""
    found = next((group.members for group in await env.client.groups() if group.name == name), [])
    return [login.partition("@")[0] for login in found]


def check(groups: GroupSync) -> tuple[bool, str]:
    (found,) = [one for one in groups.checks() if one.name == "group @containment"]
    return found.ok, found.message


@asynccontextmanager
async def following(env: BotEnvironment) -> AsyncIterator[GroupSync]:
    """The part of the bot that follows user groups, with rounds that the test begins."""
    async with CoreClient(env.core.url, env.service_key) as core:
        yield GroupSync({"containment": GroupSection(slack_usergroup=S0)}, core, env.bot.slack, lambda: "T0LOCAL")


async def test_the_leader_follows_from_its_start(tmp_path: Path) -> None:
    async with running_bot(tmp_path, manifest=MANIFEST, groups={"containment": (S0, [ANNA, NINA])}) as env:
        while not await members(env):
            pass  # each look is a request to core
        assert await members(env) == ["anna"]
        checks = [*await env.bot.health(), *await env.bot.checks()]
        told = [(one.ok, one.message) for one in checks if one.name == "group @containment"]
        assert told == [(True, f"1 of the 2 members of {S0} are linked")] * 2


async def test_a_group_follows_its_user_group(tmp_path: Path) -> None:
    async with running_bot(tmp_path, manifest=MANIFEST) as env, following(env) as groups:
        env.emulator.set_usergroup(S0, [ANNA, LEA, NINA, "U0STRANGER"])
        assert await groups.sync() == EVERY_S <= 60
        assert await members(env) == ["anna", "lea"]
        assert check(groups) == (True, f"2 of the 4 members of {S0} are linked")
        # Who leaves, and whose access ends, is out of it; what somebody typed is overwritten.
        env.emulator.set_usergroup(S0, [ANNA, BEN, LEA])
        await env.core.core.people.disable(COMMAND_LINE, "ben")
        await env.client.set_group("containment", ["rob"])
        await groups.sync()
        assert await members(env) == ["anna", "lea"]
        # Slack can't be asked: nothing changes.
        env.emulator.faults.ratelimit("usergroups.users.list", 17)
        env.emulator.set_usergroup(S0, [ANNA])
        assert await groups.sync() == 17
        assert await members(env) == ["anna", "lea"]
        assert check(groups)[0] is False
        await groups.sync()
        assert await members(env) == ["anna"]
        # Nobody follows a user group that is gone, so nobody keeps the rights that it gave.
        env.emulator.set_usergroup(S0, None)
        await groups.sync()
        assert await members(env) == []
        assert check(groups)[1].startswith(f"Slack has no user group {S0}, or it is disabled")
        env.emulator.set_usergroup(S0, [ANNA, ROB])
        await groups.sync()
        assert await members(env) == ["anna", "rob"]


async def test_a_missing_scope_is_told_and_changes_nothing(tmp_path: Path) -> None:
    scopes = [scope for scope in MANIFEST["oauth_config"]["scopes"]["bot"] if scope != "usergroups:read"]
    manifest = {**MANIFEST, "oauth_config": {"scopes": {"bot": scopes}}}
    async with running_bot(tmp_path, manifest=manifest) as env, following(env) as groups:
        await env.client.set_group("containment", ["anna"])
        env.emulator.set_usergroup(S0, [LEA])
        await groups.sync()
        assert await members(env) == ["anna"]
        sentence = (
            "The Slack app lacks the scope usergroups:read; reinstall it from manifest.yml. @containment stays as"
        )
        assert check(groups)[1].startswith(sentence)
        # `responder-bot doctor` asks by itself, and changes nothing.
        async with following(env) as other:
            (told,) = await other.checks_now()
        assert told.message.startswith(sentence)


async def test_a_group_that_core_refuses_holds_up_no_other(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env, CoreClient(env.core.url, env.service_key) as core:
        sections = {name: GroupSection(slack_usergroup=S0) for name in ("..", "containment")}
        groups = GroupSync(sections, core, env.bot.slack, lambda: "T0LOCAL", pause_s=0)
        env.emulator.set_usergroup(S0, [ANNA])
        await groups.sync()
        assert await members(env) == ["anna"]
        assert [(one.name, one.ok) for one in groups.checks()] == [("group @..", False), ("group @containment", True)]


async def test_the_doctor_of_serve_has_no_key_and_looks_at_slack_alone(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env, CoreClient(env.core.url, "") as core:
        env.emulator.set_usergroup(S0, [ANNA, NINA])
        section = {"group": {"containment": GroupSection(slack_usergroup=S0), "no": GroupSection(slack_usergroup="S9")}}
        own = env.settings.bot.model_copy(update={"core_api_key": ""})
        found = await checks(env.settings.model_copy(update={**section, "bot": own}), core, MANIFEST, now_ms)
        shown = {one.name: (one.ok, one.message) for one in found if one.name.startswith("group")}
        assert shown["group @containment"] == (True, f"user group {S0}, 2 members")
        assert shown["group @no"][0] is False


async def test_core_away_is_told_and_the_next_round_goes_on(tmp_path: Path) -> None:
    async with running_bot(tmp_path) as env, following(env) as groups:
        env.emulator.set_usergroup(S0, [ANNA])
        await env.stop_core()
        await groups.sync()
        assert [one.name for one in groups.checks() if not one.ok] == ["groups"]


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"group": {"Big Group": {"slack_usergroup": "S1"}}}, "must be a word of small letters"),
        ({"group": {"a": {"slack_usergroup": "U1"}}}, "the id of a user group in Slack"),
        ({"group": {"a": {}}}, "needs a value for slack_usergroup"),
        ({"group": {"slack_usergroup": "S1"}}, "needs the name of a group"),
        ({"bot": {"access_channel": "#admins"}}, "the id of a channel of admins"),
    ],
)
def test_wrong_settings_are_told(tree: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(ResponderBotError) as caught:
        parse(tree, tmp_path)
    assert words in caught.value.message


def test_groups_are_read_by_name(tmp_path: Path) -> None:
    found = parse({"group": {"containment": {"slack_usergroup": "S01"}}}, tmp_path)
    assert found.group == {"containment": GroupSection(slack_usergroup="S01")}
