"""Files are uploaded and deleted as desired."""

import asyncio
from pathlib import Path

import pytest

from tests.bot.outbox.harness import REPORT, SOC, all_sent, desired, files_in, outbox_environment, until, until_read


async def test_a_file_is_uploaded_once_though_the_answer_was_lost(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        env.emulator.faults.lose_answer("files.completeUploadExternal")
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.outbox.upsert(
            desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=("report.txt", "a\nlong\nreport"))
        )
        await all_sent(env)
        files = [
            file
            for root in await env.anna.messages(SOC)
            for message in await env.anna.thread(SOC, root["ts"])
            for file in message.get("files") or []
        ]
        assert [file["name"] for file in files] == ["report.txt"]


@pytest.mark.parametrize(
    ("method", "code", "sentence"),
    [
        ("files.getUploadURLExternal", "missing_scope", "Slack refuses files in C0SOC (missing_scope)"),
        ("files.getUploadURLExternal", "unknown_method", "Slack refuses files in C0SOC (unknown_method)"),
        ("files.completeUploadExternal", "invalid_arguments", "Slack refuses files in C0SOC (invalid_arguments)"),
    ],
)
async def test_a_refused_file_is_a_problem_and_its_message_is_still_updated(
    tmp_path: Path, method: str, code: str, sentence: str
) -> None:
    async with outbox_environment(tmp_path) as env:
        env.emulator.faults.error(method, code, times=100)
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.outbox.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=REPORT))
        await until_read(env.outbox.problems, bool)
        (problem,) = await env.outbox.problems()
        assert problem.message.startswith(sentence)
        assert "files:write" in problem.message
        await env.outbox.upsert(desired("end:~2:C0SOC", "done now", thread_of="alert:~1:C0SOC", file=REPORT))
        await env.shows("card", "done now")


async def test_a_file_is_uploaded_once_into_a_long_thread(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.shows("card")
        (root,) = await env.anna.messages(SOC)
        for number in range(205):
            await env.anna.say(SOC, f"talk {number}", root["ts"])
        env.emulator.faults.lose_answer("files.completeUploadExternal")
        await env.outbox.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=REPORT))
        await all_sent(env)
        assert len(await files_in(env.anna)) == 1


async def test_a_file_is_deleted_and_uploaded_as_desired(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        for wanted in (REPORT, None, None, REPORT, REPORT):
            await env.outbox.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=wanted))
            await all_sent(env)
            standing = [f["name"] for f in await files_in(env.anna) if f.get("mode") != "tombstone"]
            assert standing == ([REPORT[0]] if wanted else [])
        names = [what for _, what, _, _ in env.emulator.traffic if what.startswith("files.")]
        up = ["files.getUploadURLExternal", "files.completeUploadExternal"]
        assert names == [*up, "files.delete", *up]


@pytest.mark.parametrize("method", ["files.getUploadURLExternal", "files.completeUploadExternal"])
async def test_a_file_that_is_withdrawn_during_its_upload_is_deleted(tmp_path: Path, method: str) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.outbox.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC"))
        await all_sent(env)
        go = asyncio.Event()
        env.emulator.faults.hold(method, go)
        await env.outbox.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=REPORT))
        await until(lambda: env.emulator.faults.waiting(method) == 0)
        await env.outbox.upsert(desired("end:~2:C0SOC", "withheld", thread_of="alert:~1:C0SOC"))
        go.set()
        was_shown = method == "files.completeUploadExternal"
        await env.shows("card", "withheld", *[""] * was_shown)
        await all_sent(env)
        assert [f["mode"] for f in await files_in(env.anna)] == ["tombstone"] * was_shown
        assert [what for _, what, _, _ in env.emulator.traffic if what.startswith("files.")][-1] == "files.delete"


async def test_a_file_that_is_desired_again_during_its_deletion_is_uploaded_again(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.outbox.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=REPORT))
        await all_sent(env)
        env.emulator.faults.lose_answer("files.delete")
        await env.outbox.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC"))
        await until(lambda: env.emulator.faults.waiting("files.delete") == 0)
        await env.outbox.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=REPORT))
        await all_sent(env)
        assert [f.get("mode") for f in await files_in(env.anna)] == ["tombstone", "hosted"]


async def test_the_file_of_a_deleted_reply_is_deleted(tmp_path: Path) -> None:
    async with outbox_environment(tmp_path) as env:
        await env.outbox.upsert(desired("alert:~1:C0SOC", "card"))
        await env.outbox.upsert(desired("end:~2:C0SOC", "done", thread_of="alert:~1:C0SOC", file=REPORT))
        await all_sent(env)
        env.emulator.faults.error("chat.update", "message_not_found")
        await env.outbox.upsert(desired("end:~2:C0SOC", "withheld", thread_of="alert:~1:C0SOC"))
        await all_sent(env)
        assert [f["mode"] for f in await files_in(env.anna)] == ["tombstone"]
