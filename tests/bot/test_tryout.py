"""`responder-bot try`: the scripted demo end to end, in its own process."""

import asyncio
import json
import os
import signal
import socket
import stat
from pathlib import Path

import aiohttp
import pytest

from bot.demo.transcript import text_of
from tests import programs
from tests.bot.people import Person
from tests.documents import ROOT, blocks
from tests.programs import PIPE, Program

PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")  # unreachable; local addresses must bypass them


async def started(folder: Path, *args: str, command: str = "try") -> Program:
    environment = {**os.environ, **dict.fromkeys(PROXIES, "http://127.0.0.1:9")}
    return await programs.start("bot.cli", command, *args, cwd=folder, env=environment, stdout=PIPE, stderr=PIPE)


async def test_the_scripted_demo_succeeds(tmp_path: Path) -> None:
    process = await started(tmp_path, "--once")
    out, err = (text.decode() for text in await process.communicate())
    assert (process.returncode, err) == (0, "")
    assert out.endswith("\nAll steps succeeded.\n")
    ended = [line for line in out.splitlines() if line.startswith("> core: ")]
    assert [line.removesuffix(" ended: Success") for line in ended] == [
        "> core: Extract Indicators",
        "> core: Isolate Host",
        "> core: Release Host",
        "> core: Webhook",
        "> core: Close As False Positive",
        "> core: case template ~28 Malware beacon, 1 task(s)",
    ]
    assert "[#soc-alerts new] 🟠 HIGH" in out
    happened = ["is read by edge-fw", "> Anna: presses Block", "· read by edge-fw", "> Anna: chooses 15",
                "Anna asks · ", "> Ben: presses Approve", "LT-0198 is in force until",
                "> Anna: presses Extend", "⏳ Keep until", "> Ben: presses Undo now"]  # fmt: skip
    assert [out.index(what) for what in happened] == sorted(out.index(what) for what in happened)
    assert " UTC" not in out  # times are the reader's
    assert "changed] [" not in out  # buttons alone tell nothing


@pytest.mark.slow
async def test_try_serves_until_interrupted_and_rings_for_a_critical_alert(tmp_path: Path) -> None:
    state = tmp_path / "state"
    process = await started(tmp_path, "--state", str(state))
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode()
    addresses = json.loads((state / "try.json").read_text())
    page, core = addresses["page"], addresses["core"]
    assert line == f"Open this in your browser: {page}   (Ctrl+C stops it)\n"
    assert stat.S_IMODE((state / "try.json").stat().st_mode) == 0o600
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        async with session.get(page) as answer:
            assert answer.status == 200
        async with session.get(f"{core}/health") as answer:
            assert (await answer.json())["status"] == "ok"
    url, _, token = page.partition("/?token=")
    async with Person(url, token, "U0LEA") as lea:
        await lea.until(lambda view: "New: CRITICAL" in str(view.notifications))
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 0
    assert await process.stdout.read() == b""


async def test_the_commands_of_the_page_put_an_alert_of_suricata_on_a_card(tmp_path: Path) -> None:
    """But for the port, which is free here: from the fourth command on, as the page has them."""
    (block,) = (found for found in blocks(ROOT / "core/docs/sources.md", "sh") if "try --port" in found)
    lines, state = block.strip().splitlines(), tmp_path / "state"
    assert len(lines) == 5
    start, send = (line.replace("/tmp/responder-bot-try", str(state)) for line in lines[3:])  # noqa: S108 - the page's
    arguments = start.removeprefix("uv run responder-bot try --port 8000 ").split()
    process = await started(tmp_path, *arguments)
    assert process.stdout is not None
    await process.stdout.readline()
    addresses = json.loads((state / "try.json").read_text())
    url, _, token = addresses["page"].partition("/?token=")
    assert stat.S_IMODE((state / "suricata.curl").stat().st_mode) == 0o600
    received = []
    async with Person(url, token, "U0ANNA") as anna:
        for words in ("ET MALWARE Win32/Example CnC Checkin", " · 2 x, last "):
            curl = await asyncio.create_subprocess_exec(*send.split(), cwd=ROOT, stdout=PIPE)
            received.append(json.loads((await curl.communicate())[0]))
            (card,) = await anna.until(
                lambda view, words=words: [  # type: ignore[misc]  # bound here
                    text for message in view.messages("C0ALERTS") if words in (text := text_of(message))
                ]
            )
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 0
    assert [(answer["created"], answer["repeated"]) for answer in received] == [(1, 0), (0, 1)]
    assert "ET MALWARE Win32/Example CnC Checkin" in card
    assert "ip `10[.]20[.]4[.]17` · source · +3\u00a0more" in card
    again = await started(tmp_path, "--state", str(state))  # goes on with the alerts of before
    assert again.stdout is not None
    assert (await again.stdout.readline()).startswith(b"Open this in your browser: ")
    again.send_signal(signal.SIGINT)
    assert await again.wait() == 0


@pytest.mark.slow
async def test_doctor_passes_for_the_emulator_alone_and_prints_only_its_lines(tmp_path: Path) -> None:
    process = await started(tmp_path, "--workspace-only")
    assert process.stdout is not None
    lines = [(await process.stdout.readline()).decode().strip() for _ in range(6)]
    address, bot_token, app_token = (line.partition("=")[2] for line in lines[3:])
    (tmp_path / "responder-bot.toml").touch(0o600)  # it holds tokens
    (tmp_path / "responder-bot.toml").write_text(
        '[core]\nport = 9\nstate = "responder-bot.toml/below"\ndatabase = "responder-bot.db"\n'
        f'[slack]\napi_url = "{address}"\nbot_token = "{bot_token}"\napp_token = "{app_token}"\nlink_by_email = true\n'
        '[[channel]]\nid = "C0GENERAL"\nclearance = "amber"\nalerts = {}\n'
        '[[channel]]\nid = "C0GONE"\nclearance = "amber"\n'
    )
    for login, slack_id in (("anna", ["--slack-id", "U0ANNA"]), ("ben", [])):  # he is linked by e-mail
        adding = await started(tmp_path, "add", login, "--profile", "analyst", *slack_id, command="user")
        await adding.communicate()
    doctor = await started(tmp_path, command="doctor")
    out, err = await doctor.communicate()
    process.send_signal(signal.SIGINT)
    assert await process.wait() == 0
    assert (doctor.returncode, err.decode()) == (1, "")
    results = {tuple(line.split(":")[0].split(None, 1)) for line in out.decode().splitlines()}
    fine = (
        "settings",
        "confinement here",
        "audit",
        "key",
        "keys",
        "token",
        "scopes",
        "files",
        "clock",
        "socket",
        "people",
        "bot",
    )
    assert results == {
        *(("ok", name) for name in fine),
        ("WARN", "channel #general"),  # where nobody is mentioned
        *(("FAIL", name) for name in ("folders", "core", "channel C0GONE")),
    }
    assert "people: 2 of 2 in the channels are linked" in out.decode()  # read from the store, since there is no key
    assert "core: Core does not answer at http://127.0.0.1:9;" in out.decode()  # where [core] of the same file has it


@pytest.mark.slow
async def test_an_unavailable_port_or_folder_is_one_sentence_and_exit_status_2(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        mistakes = [
            (["--port", port], "give another with --port"),
            (["--workspace-only", "--port", port], "give another with --port"),
            (["--port", "80000"], "'80000' is not a port; give a number from 1 to 65534"),
            (["--state", str(tmp_path / "file" / "x")], "give another with --state"),
        ]
        for arguments, hint in mistakes:
            process = await started(tmp_path, *arguments)
            _, errors = await process.communicate()
            assert (process.returncode, errors.decode().count("\n")) == (2, 1), errors.decode()
            assert hint in errors.decode()
