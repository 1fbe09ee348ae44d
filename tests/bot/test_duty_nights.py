"""Nights on two hosts that are killed, with a Slack that refuses calls: each step asks once, no message comes twice."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bot.slack_emulator import EmulatedUser, SlackEmulator
from core.client import CoreClient
from core.common.clock import now_ms
from core.common.errors import ResponderBotError
from core.models import AskedStep, Duty
from core.people import People
from tests import stores
from tests.bot.chaos import (
    CHANNELS,
    SOURCES,
    USERS,
    BotProcess,
    Installation,
    add_users,
    free_port,
    settings_text,
    start_process,
    write_responders,
)
from tests.bot.chaos_scene import faults_in
from tests.bot.features.approvals.test_decisions import direct
from tests.bot.features.environment import text_of
from tests.bot.running import ALERT, ANNA, BEN, LEA, add_people_and_channels
from tests.core.core_process import until

SEED = 20261123
CLEO = "U0CLEO"
SOURCE = SOURCES[-1]
"""Of the alerts of the last channel, which has a duty."""
STEPS = (("0s", "@oncall"), ("12s", "@leads"), ("24s", "channel"))
EXPECTED = {"approval": [["anna"], ["ben"], ["cleo"]], "alert": [["anna"], ["ben"], ["cleo", "lea"]]}
NIGHTS, APPROVALS, ALERTS = 2, 20, 4
"""In the last night nothing is killed; in ten minutes a duty asks about ten alerts."""
PROGRAM = """
import json, sys
from pathlib import Path

report = {"success": True, "full": {"message": "done"}, "operations": []}
(Path(sys.argv[1]) / "output" / "output.json").write_text(json.dumps(report))
"""


@dataclass
class Hosts:
    """Two of `serve` on one database."""

    folders: Sequence[Installation]
    chance: random.Random
    processes: list[BotProcess] = field(default_factory=list)
    kills: int = 0

    async def start(self) -> None:
        for one in self.folders:
            self.processes.append(await start_process(one, "serve"))
            await self.processes[-1].up()

    async def kill(self) -> None:
        """One of them, at any moment; it starts again, while the other one serves."""
        number = self.chance.randrange(len(self.processes))
        await self.processes[number].kill()
        self.kills += 1
        self.processes[number] = await start_process(self.folders[number], "serve")
        await self.processes[number].up()

    async def close(self) -> None:
        for process in self.processes:
            await process.stop()


async def installed(folder: Path, emulator: SlackEmulator) -> list[Installation]:
    """Settings of two hosts, responders and people."""
    write_responders(folder)
    for name in ("Contain",):
        home = folder / "responders" / name
        home.mkdir()
        (home / "program.py").write_text(PROGRAM)
        definition = {
            "name": name,
            "version": "1.0",
            "dataTypeList": ["thehive:alert"],
            "command": f"{name}/program.py",
        }
        (home / f"{name}.json").write_text(json.dumps(definition))
    steps = ", ".join(f'{{ after = "{after}", ask = "{ask}" }}' for after, ask in STEPS)
    duty = [
        'unassigned = "default"',  # of the last channel
        f'[duty."default"]\nsteps = [{steps}]',
        '[group."oncall"]\nslack_usergroup = "S0ONCALL"',
        '[responder."Contain_1_0"]\ncontains = true',
    ]
    here = []
    for number in range(2):
        own = folder / f"host{number}"
        own.mkdir()
        core = {"database": stores.setting(folder / "core.db"), "jobs": str(folder / "jobs")}
        bot = {"database": stores.setting(folder / "slack.db")}
        text = settings_text(folder, free_port(), core=core, bot=bot)
        (own / "responder-bot.toml").write_text("\n".join([text, *duty]))
        here.append(Installation(own, emulator))
    await add_users(here[0], folder / "core.db", [*USERS, ("cleo", "analyst", CLEO)])
    here[1].keys = here[0].keys
    async with stores.opened(folder / "core.db") as database:
        await People(database, "responder-bot.local", now_ms).add_member("leads", "ben")
    return here


@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_each_step_asks_once_whatever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)  # noqa: S311 - the same each time
    async with AsyncExitStack() as stack:
        emulator = SlackEmulator(rates=False)
        add_people_and_channels(emulator)
        emulator.add_user(CLEO, name="cleo", real_name="Cleo", email="cleo@responder-bot.local")
        for channel in CHANNELS:
            emulator.add_channel(
                channel, name=channel[2:].lower(), members=[ANNA, BEN, LEA, CLEO, emulator.bot_user_id]
            )
        emulator.set_usergroup("S0ONCALL", [ANNA])
        await stack.enter_async_context(emulator)
        people = {
            name: await stack.enter_async_context(EmulatedUser(emulator.url, emulator.page_token, user))
            for name, user in (("anna", ANNA), ("ben", BEN), ("lea", LEA), ("cleo", CLEO))
        }
        hosts = Hosts(await installed(tmp_path, emulator), chance)
        stack.push_async_callback(hosts.close)
        await hosts.start()
        members = "SELECT login FROM group_member WHERE name = 'oncall'"
        await until(lambda: stores.rows(tmp_path / "core.db", members), "the members of the user group")
        emulator.faults.error("usergroups.users.list", "internal_error", 10_000)

        async def ask(work: Callable[[CoreClient], Any]) -> Any:
            """Ask whichever host serves, until one answers."""
            while True:
                async with CoreClient(chance.choice(hosts.folders).core_url, hosts.folders[0].keys["lea"]) as client:
                    try:
                        return await work(client)
                    except ResponderBotError as error:
                        assert error.code == "unavailable", error
                await asyncio.sleep(0.05)

        titles: dict[str, tuple[int, str]] = {}

        async def something(night: int, number: int) -> None:
            """An alert that waits for an approval, or for somebody to work on it."""
            what = "alert" if number < ALERTS else "approval"
            source = SOURCE if what == "alert" else SOURCES[number % (len(SOURCES) - 1)]
            title = f"Beacon {night} {number} of {what}"
            body = {**ALERT, "source": source, "sourceRef": title, "title": title}
            try:
                await ask(lambda client: client.create_alert(body))
            except AssertionError as error:
                assert "exists" in str(error)  # its first answer was lost
            titles[title] = night, what
            alert = await ask(lambda client: client.alert(f"{body['type']};{source};{title}"))
            responder = "Approved_1_0" if what == "approval" else "Contain_1_0"
            run = {"responderId": responder, "objectType": "alert", "objectId": alert.id}
            if what == "approval" or number == 0:
                await ask(lambda client: client.run(run, title))  # if its first answer was lost, this is the same run

        for night in range(NIGHTS):
            begun = [asyncio.create_task(something(night, number)) for number in range(APPROVALS + ALERTS)]
            for _ in range(4):
                emulator.faults.ratelimit("chat.postMessage", chance.randrange(1, 3))
                emulator.faults.lose_answer(chance.choice(("chat.postMessage", "conversations.open")))
                await asyncio.sleep(chance.uniform(0.5, 4))
                if night + 1 < NIGHTS:
                    await hosts.kill()
            await asyncio.gather(*begun)
            await until(lambda: all(len(one.asked) == len(STEPS) for one in duties(tmp_path).values()), "all steps")
        expected = {title: EXPECTED[what] for title, (_, what) in titles.items()}
        assert {title: asked(duty.asked) for title, duty in duties(tmp_path).items()} == expected

        def posted() -> Counter[tuple[str, str]]:
            """How many messages there are about each, to each person and to the channel of the last step."""
            found: Counter[tuple[str, str]] = Counter()
            for name, person in people.items():
                for message in direct(person.live_view):
                    text = text_of(message)
                    found.update((title, name) for title in titles if title in text)
            view = people["lea"].live_view
            for channel in CHANNELS:
                for card in view.messages(channel):
                    texts = [text_of(reply) for reply in view.thread(channel, card["ts"])[1:]]
                    for title in (title for title in titles if title in text_of(card)):
                        found[title, "channel"] += sum("Please " in t and "<@U0CLEO>" in t for t in texts)
                        found[title, "told"] += sum("@oncall stays as it is" in t for t in texts)
                        for name in ("anna", "ben"):
                            found[title, f"line of {name}"] += sum(
                                f"Asked {name} " in t and "look" not in t for t in texts
                            )
            return found

        await until(lambda: sent(tmp_path) >= len(titles), "all lines of the last step")
        await people["lea"].until(lambda _: all(posted()[title, "channel"] for title in titles), 10)
        messages = posted()
        print(json.dumps({"kills": hosts.kills, "steps": 3 * len(titles), "messages": messages.total()}))  # noqa: T201
        assert {key: number for key, number in messages.items() if number > 1 and key[1] != "told"} == {}
        for title, (night, _) in titles.items():  # of what a bot missed, it tells only the newest step
            directly = [messages[title, name] for name in ("anna", "ben", "cleo")]
            assert directly == [messages[title, "line of anna"], messages[title, "line of ben"], 0]
            if night == NIGHTS - 1:  # the members may be others
                assert messages[title, "told"] >= messages[title, "line of anna"]
        assert sum(messages[title, "anna"] for title in titles) > 0
        assert [problem for one in hosts.folders for problem in faults_in(one)] == []


def sent(folder: Path) -> int:
    """How many lines of the last step stand in Slack, once nothing waits to be sent."""
    keys = stores.rows(folder / "slack.db", "SELECT key, ts FROM message")
    return len([key for key, _ in keys if key.startswith("step:") and key.split(":")[3] == "3"]) * all(
        ts for _, ts in keys
    )


def documents(folder: Path) -> list[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
    """Each alert with each run on it, or None."""
    alerts = {f"~{number}": json.loads(doc) for number, doc in objects(folder, "object WHERE kind = 'alert'")}
    runs = [json.loads(doc) for _, doc in objects(folder, "action WHERE kind = 'alert'")]
    return [(alerts[run["objectId"]], run) for run in runs] + [(alert, None) for alert in alerts.values()]


def objects(folder: Path, which: str) -> list[tuple[Any, ...]]:
    return stores.rows(folder / "core.db", f"SELECT id, doc FROM {which}")  # noqa: S608 - our own texts


def duties(folder: Path) -> dict[str, Duty]:
    """By title: who was asked to approve the run, or to work on the alert."""
    found = {}
    for alert, run in documents(folder):
        waiting = run.get("approval") if run is not None else alert if alert["source"] == SOURCE else None
        if waiting:
            found[alert["title"]] = Duty.model_validate(waiting.get("duty") or {})
    return found


def asked(steps: Sequence[AskedStep]) -> list[list[str]]:
    return [[login.partition("@")[0] for login in step.logins] for step in steps]
