"""A bot at work, to be stopped and gone on with by a later release.

`python -m tests.bot.upgrade FOLDER` leaves there the database and what is in Slack, as this release has made them.
At a tag its FOLDER is tests/bot/releases/TAG; test_upgrade.py opens each of them.
"""

import asyncio
import gzip
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bot.block_kit import ids
from bot.slack_emulator import SlackEmulator
from core.client import CoreClient
from tests.bot.people import Person, card_of
from tests.bot.running import ALERT, ANNA, LEA, SOC, add_people_and_channels
from tests.bot.serving import output_after, started, user_added
from tests.core.core_process import stepwise, write_pipe

DATABASE = "responder-bot.db"
FILES = (DATABASE, f"{DATABASE}-inbox")
BLOCK, CLOSE = "ResponderBot_Block_1_0", "ResponderBot_CloseAsFalsePositive_1_0"
WAIT = "Stepwise_1_0"
SETTINGS = f"""
[core]
port = 0
confinement = "none" # one of its runs waits for a pipe

[[engine]]
name = "local"
responders = ["responders"]

[responder."{CLOSE}"]
approval = 1
approval_expires_minutes = 5_256_000 # ten years: releases are opened long after they were made

[responder."{BLOCK}"]
undo_after_minutes = 60
allow_permanent = true

[reader."firewall"]
lists = ["ip"]

[[channel]]
id = "{SOC}"
clearance = "amber"
alerts = {{}}
"""


@asynccontextmanager
async def serving(folder: Path, messages: Sequence[dict[str, Any]] = ()) -> AsyncIterator[tuple[SlackEmulator, str]]:
    """Run `serve` on this folder, in a Slack with these messages in its channel; gives core's address."""
    (folder / "responder-bot.toml").write_text(SETTINGS)
    (folder / "responders").mkdir(exist_ok=True)
    emulator = SlackEmulator(rates=False)
    add_people_and_channels(emulator)
    emulator.restore(SOC, messages)
    async with emulator:
        tokens = {"SLACK_BOT_TOKEN": emulator.bot_token, "SLACK_APP_TOKEN": emulator.app_token}
        environment = {**tokens, "SLACK_API_URL": emulator.api_url}
        process = await started(folder, ["serve"], environment, asyncio.subprocess.DEVNULL)
        try:
            url = await output_after(process, "core: ")
            await output_after(process, "bot: ")
            yield emulator, url
            process.terminate()
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def has(message: dict[str, Any], family: str) -> bool:
    """Whether a message has a button of this family."""
    return f'"{family}' in json.dumps(message.get("blocks", []))


async def waiting_message(person: Person) -> dict[str, Any]:
    """The message that asks for an approval."""
    return await person.until(
        lambda view: next(
            (m for root in view.messages(SOC) for m in view.thread(SOC, root["ts"]) if has(m, ids.APPROVE)), {}
        )
    )


async def work(folder: Path) -> list[dict[str, Any]]:
    """Leave an alert with a Block in force, a run that runs and one that waits for approval; what is in Slack."""
    stepwise(folder / "responders", "Stepwise")
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    async with serving(folder) as (emulator, url), Person(emulator.url, emulator.page_token, LEA) as lea:
        key = await user_added(folder, "anna", "analyst", "--slack-id", ANNA)
        await user_added(folder, "lea", "org-admin", "--slack-id", LEA)
        async with CoreClient(url, key) as core:
            alert = await core.create_alert(ALERT)
            await lea.sees(card_of(alert))
            address = {"objectType": "case_artifact", "objectId": alert.artifacts[0].id, "undoAfterMinutes": 0}
            whole = {"objectType": "alert", "objectId": alert.id}
            steps = {**whole, "parameters": {"steps": [f"wait {pipe}"]}}
            for responder, given, left in (
                (BLOCK, address, "Success"),
                (WAIT, steps, "InProgress"),
                (CLOSE, whole, "Waiting"),
            ):
                run = await core.run({"responderId": responder, **given})
                while run.status != left:
                    run = await core.action(run.id, wait_s=20)
            await waiting_message(lea)
            await lea.sees(card_of(alert, "in force"))
        messages = emulator.messages(SOC)
    await write_pipe(pipe)  # its program ends, as on a host that is gone
    return messages


async def keep(folder: Path) -> None:
    """Write the database and what is in Slack into a folder."""
    with tempfile.TemporaryDirectory() as place:
        messages = await work(Path(place))
        for name in FILES:
            (folder / f"{name}.gz").write_bytes(gzip.compress((Path(place) / name).read_bytes(), mtime=0))
    (folder / "slack.json").write_text(json.dumps(messages, indent=1))


def unpack(release: Path, folder: Path) -> list[dict[str, Any]]:
    """Put the database of a release into a folder; what was in Slack."""
    for name in FILES:
        (folder / name).write_bytes(gzip.decompress((release / f"{name}.gz").read_bytes()))
    messages: list[dict[str, Any]] = json.loads((release / "slack.json").read_text())
    return messages


if __name__ == "__main__":
    os.makedirs(sys.argv[1])
    with tempfile.TemporaryDirectory() as programs:
        os.environ["TEST_PROGRAMS"] = programs  # as `conftest.py` does
        asyncio.run(keep(Path(sys.argv[1])))
