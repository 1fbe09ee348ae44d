"""`doctor --post` against the emulator, and against a stand-in that shares nothing with it."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bot.doctor import examples
from bot.slack_emulator import EmulatedUser, SlackEmulator
from tests.bot.running import ANNA, SOC, add_people_and_channels
from tests.bot.strict_slack import CHANNEL, TOKEN, strict_slack
from tests.bot.test_serve import started

MESSAGES = [name for name, (kind, _) in examples.payloads(0).items() if kind == "message"]


async def doctor(folder: Path, channel: str, token: str, api_url: str) -> tuple[int, list[str]]:
    """The exit code, and the lines that it prints."""
    environment = {"SLACK_BOT_TOKEN": token, "SLACK_APP_TOKEN": "xapp-1", "SLACK_API_URL": api_url}
    process = await started(folder, ["doctor", "--post", channel], environment, asyncio.subprocess.PIPE)
    out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, (out + err).decode().splitlines()


def failures(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith("FAIL")]


async def test_the_emulator_takes_each_kind_and_keeps_nothing(tmp_path: Path) -> None:
    emulator = SlackEmulator(rates=False)
    add_people_and_channels(emulator)
    async with emulator:
        code, lines = await doctor(tmp_path, SOC, emulator.bot_token, emulator.api_url)
        assert (code, failures(lines)) == (0, [])
        assert [line for line in lines if "posted, read, updated, answered and deleted" in line] == [
            f"ok    {name}: posted, read, updated, answered and deleted" for name in MESSAGES
        ]
        assert "ok    file: uploaded into a thread, and deleted" in lines
        assert "ok    left behind: nothing" in lines
        async with EmulatedUser(emulator.url, emulator.page_token, ANNA) as anna:
            assert anna.live_view.messages(SOC) == []


async def test_a_strict_slack_takes_each_kind_and_what_it_answers_is_shown_without_secrets(tmp_path: Path) -> None:
    async with strict_slack() as slack:
        code, lines = await doctor(tmp_path, CHANNEL, TOKEN, f"{slack.url}/api/")
        assert (code, failures(lines)) == (0, [])
        assert len([line for line in lines if "posted, read, updated, answered and deleted" in line]) == len(MESSAGES)
        assert "ok    remark: chat.postMessage was held back for 1 s" in lines
        assert "ok    left behind: nothing" in lines
        assert (slack.messages, [file["is_deleted"] for file in slack.files.values()]) == ({}, [True])
        posts = slack.calls.count("chat.postMessage") - 1  # the one that was held back
        (time,) = [line for line in lines if line.startswith("ok    time: chat.postMessage: ")]
        assert f": {posts} calls, " in time
        said = "\n".join(lines)
        assert not any(secret in said for secret in (TOKEN, "xapp-1", "a-secret", str(tmp_path)))


def lose_buttons(message: dict[str, Any]) -> None:
    message["blocks"] = [block for block in message["blocks"] if block["type"] != "actions"]


def rename_buttons(message: dict[str, Any]) -> None:
    for block in message["blocks"]:
        for element in block.get("elements", []) if block["type"] == "actions" else []:
            element["action_id"] = "another"


@pytest.mark.parametrize(
    ("options", "name", "words"),
    [
        ({"channel": {"is_archived": True}}, "channel", "C0STRICT is archived; name another channel"),
        ({"channel": {"is_member": False}}, "channel", "the bot is not in C0STRICT; invite it there with /invite"),
        ({"channel": {"is_ext_shared": True}}, "channel", "is shared with another organisation"),
        ({"lacks": "chat:write"}, "channel", "lacks the scope chat:write; reinstall"),
        ({"lacks": "files:write"}, "file", "lacks the scope files:write; reinstall"),
        ({"lacks": "metadata.message:read"}, "card", "Slack doesn't keep /metadata as it was sent"),
        (
            {"refused": {"chat.update": "edit_window_closed"}},
            "card",
            "chat.update: edit_window_closed: Slack lets nobody",
        ),
        (
            {"refused": {"files.completeUploadExternal": "not_allowed"}},
            "file",
            "files.completeUploadExternal: not_allowed",
        ),
        ({"altered": lose_buttons}, "approval", "Slack doesn't keep /blocks as it was sent"),
        ({"altered": rename_buttons}, "approval", "Slack doesn't keep /blocks/"),
    ],
)
async def test_what_slack_refuses_or_changes_is_said_and_all_else_deleted(
    tmp_path: Path, options: Mapping[str, Any], name: str, words: str
) -> None:
    async with strict_slack(**options) as slack:
        code, lines = await doctor(tmp_path, CHANNEL, TOKEN, f"{slack.url}/api/")
        assert code == 1
        (failure,) = [line for line in failures(lines) if line.startswith(f"FAIL  {name}: ")]
        assert words in failure
        assert "ok    left behind: nothing" in lines
        assert not slack.messages
        assert all(file["is_deleted"] for file in slack.files.values())


async def test_what_can_not_be_deleted_is_named(tmp_path: Path) -> None:
    async with strict_slack(refused={"chat.delete": "cant_delete_message"}) as slack:
        code, lines = await doctor(tmp_path, CHANNEL, TOKEN, f"{slack.url}/api/")
        assert code == 1
        (left,) = [line for line in lines if "left behind" in line]
        assert all(ts in left for ts in slack.messages)


async def test_what_it_posted_is_deleted_when_it_is_stopped(tmp_path: Path) -> None:
    async with strict_slack() as slack:
        environment = {"SLACK_BOT_TOKEN": TOKEN, "SLACK_APP_TOKEN": "xapp-1", "SLACK_API_URL": f"{slack.url}/api/"}
        process = await started(tmp_path, ["doctor", "--post", CHANNEL], environment, asyncio.subprocess.DEVNULL)
        assert process.stdout is not None
        while not (await process.stdout.readline()).startswith(b"ok    channel"):
            pass
        process.terminate()
        assert await process.wait() == 130
        assert not slack.messages
