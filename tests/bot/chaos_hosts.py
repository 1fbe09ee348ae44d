"""Hosts on one database are killed at random, the database too, and the network to it is cut, while analysts work.

    python -m tests.bot.chaos_hosts

prints what happened and what is wrong in the end. It takes about ten minutes; `--seconds` says for how long the trouble
lasts, `--processes` does without namespaces, and CHAOS_SEED makes another run of it.
"""

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bot.slack_emulator import SlackEmulator
from core.common.database.location import PostgresqlUrl
from core.models import Profile
from tests.bot.chaos import (
    CHANNELS,
    ON_ALERTS,
    USERS,
    Installation,
    add_users,
    settings_text,
    write_responders,
)
from tests.bot.chaos_scene import (
    Scene,
    cancelled,
    check_runs,
    events_of,
    faults_in,
    kept,
    slack_shows,
    truth,
    unsettled,
)
from tests.bot.machines import GATEWAY, Bridge, Machine, NamespaceMachine, ProcessMachine, namespaces_work
from tests.bot.people import Person
from tests.bot.running import ALERT, PEOPLE, add_people_and_channels
from tests.core.core_process import until
from tests.ports import free_port
from tests.postgresql_process import PostgresqlServer

SEED = int(os.environ.get("CHAOS_SEED", "20261122"))
SCHEMA = "chaos"
LEASE_S = 15.0
"""After which a host that is gone is lost."""
LOST = r"was lost while it ran|wrote no output/output.json"
"""What the report says of an action whose program ended with its host, or whose end nobody could see."""
PATIENCE_S = 300.0
"""How long people wait for a card; all hosts may be away for a while."""
PROBE_S = 0.5
PROBE_TIMEOUT_S = 40.0
KINDS = tuple(kind for kind in ON_ALERTS if kind != "Daemon")
"""Nothing but its supervisor knows a daemon, so it would outlive its machine where that is a folder."""


@dataclass(frozen=True)
class Plan:
    """How much happens, and for how long."""

    seconds: float = 300.0
    kill_every_s: float = 10.0
    outages: int = 2
    """How often the database is killed."""
    cuts: int = 3
    cut_s: float = 30.0
    analysts: int = 20
    pace_s: float = 4.0
    hosts: int = 3


SHORT = Plan(seconds=20.0, kill_every_s=6.0, outages=1, cuts=1, cut_s=8.0, analysts=6, pace_s=2.0)


class Cluster(Installation):
    """The hosts and what they share: the database, the responders and the counts of their runs."""

    def __init__(self, folder: Path, emulator: SlackEmulator, server: PostgresqlServer) -> None:
        super().__init__(folder, emulator)
        self.server = server
        self.machines: list[Machine] = []

    def any_core(self, chance: random.Random) -> str:
        up = [machine.installed.core_url for machine in self.machines if machine.is_serving]
        return chance.choice(up) if up else ""

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.server.rows(SCHEMA, sql)

    def rows_of_inbox(self, sql: str) -> list[tuple[Any, ...]]:
        return self.rows(sql)

    def logs(self) -> list[tuple[str, str]]:  # type: ignore[override]
        return [log for machine in self.machines for log in machine.installed.logs()]

    def job_folders(self) -> list[Path]:
        return [folder for machine in self.machines for folder in machine.installed.job_folders()]

    def processes(self) -> list[str]:
        return [process for machine in self.machines for process in machine.installed.processes()]

    async def add_machines(self, count: int, *, in_namespaces: bool) -> None:
        """Write their settings; the first start of one of them follows."""
        for number in range(count):
            name = f"host{number}"
            folder = self.folder / name
            folder.mkdir()
            installed = Installation(folder, self.emulator, self.keys)
            machine: Machine
            if in_namespaces:
                machine = NamespaceMachine(installed, number, self.emulator.url, self.server.port)
                port = 9000
            else:
                machine = ProcessMachine(installed, self.server)
                port = free_port()
            text = settings_text(
                self.folder,
                port,
                address=machine.address,
                core={"host_name": name, "database": machine.database_url(self.server, SCHEMA)},
            )
            (folder / "responder-bot.toml").write_text(text)
            self.machines.append(machine)


@dataclass
class Answer:
    """What a probe of a host was answered."""

    at: float
    what: str
    status: int
    sentence: str
    took_s: float


@dataclass
class Probes:
    """Asks each host all the time whether it reads and writes; every alert that was acknowledged has to be there."""

    cluster: Cluster
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    acknowledged: dict[str, str] = field(default_factory=dict)
    """The id of an alert to its sourceRef."""
    silent: list[str] = field(default_factory=list)
    """Hosts that gave no answer although they served all the time."""

    async def run(self) -> None:
        timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
        # A connection for each: one that is older than its machine's last start would be reset.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session, asyncio.TaskGroup() as group:
            for machine in self.cluster.machines:
                group.create_task(self._probe(machine, session))

    async def _probe(self, machine: Machine, session: aiohttp.ClientSession) -> None:
        name = machine.installed.folder.name
        number = 0
        while True:
            number += 1
            reference = f"{name}-{number}"
            body = {**ALERT, "source": "probe", "sourceRef": reference}
            document = await self._ask(machine, session, "POST", "/api/alert", "sensor", body)
            if document is not None:
                self.acknowledged[document["id"]] = reference
            if self.acknowledged:
                await self._ask(machine, session, "GET", f"/api/alert/{list(self.acknowledged)[-1]}", "lea")
            await asyncio.sleep(PROBE_S)

    async def _ask(
        self,
        machine: Machine,
        session: aiohttp.ClientSession,
        method: str,
        path: str,
        user: str,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any] | None:
        """The document of an answer; None without any, or where core says why not."""
        name, serve, began = machine.installed.folder.name, machine.serve, time.monotonic()
        if not machine.is_serving:
            return None
        headers = {"Authorization": f"Bearer {self.cluster.keys[user]}"}
        try:
            async with session.request(
                method, machine.installed.core_url + path, headers=headers, json=body
            ) as response:
                document: dict[str, Any] = await response.json()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if machine.serve is serve and machine.is_serving:
                self.silent.append(f"{name}: {method} after {time.monotonic() - began:.1f} s: {error!r}")
            return None
        now = time.monotonic()
        answer = Answer(began, method, response.status, str(document.get("message", "")), now - began)
        self.answers.setdefault(name, []).append(answer)
        return document if response.status < 300 else None

    def faults(self) -> list[str]:
        """Answers that nobody should get, whatever happens to the database."""
        found = list(self.silent)
        for name, answers in self.answers.items():
            for one in answers:
                is_sentence = one.sentence.endswith(".") and " " in one.sentence
                if one.status >= 300 and not (one.status == 503 and is_sentence):
                    found.append(f"{name}: {one.what} was answered {one.status} {one.sentence!r}")
        return found

    def lost(self) -> list[str]:
        """Alerts that were acknowledged and are not there, or are there twice."""
        stored = Counter(f"{alert['id']} {alert['sourceRef']}" for alert in kept(self.cluster, "alert"))
        wanted = [f"{number} {reference}" for number, reference in self.acknowledged.items()]
        twice = Counter(alert["sourceRef"] for alert in kept(self.cluster, "alert"))
        return [f"alert {one} is there {stored[one]} times" for one in wanted if stored[one] != 1] + [
            f"{reference} is there {n} times" for reference, n in twice.items() if n > 1
        ]

    async def back(self, machines: Sequence[Machine], since: float) -> float:
        """How many seconds after `since` each of them has written again."""
        names = [machine.installed.folder.name for machine in machines]

        def wrote(name: str) -> Answer | None:
            found = (a for a in self.answers.get(name, []) if a.what == "POST" and a.status < 300)
            return next((a for a in found if a.at + a.took_s > since), None)

        def all_wrote() -> bool:
            return all(wrote(name) for name in names)

        await until(all_wrote, f"a write of {names}")
        return max((one.at + one.took_s - since for name in names if (one := wrote(name))), default=0.0)


@dataclass
class Trouble:
    """What happens to the hosts, the database and the network."""

    cluster: Cluster
    probes: Probes
    plan: Plan
    chance: random.Random
    say: Callable[[str], None]
    done: Counter[str] = field(default_factory=Counter)
    back_s: dict[str, list[float]] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)
    _restarts: set["asyncio.Task[None]"] = field(default_factory=set)

    async def run(self) -> None:
        """Returns with everything up again."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._kill_hosts())
                group.create_task(self._at(self.plan.outages, self._kill_database))
                group.create_task(self._at(self.plan.cuts, self._cut_network))
            await asyncio.gather(*self._restarts)
        finally:
            for restart in self._restarts:
                restart.cancel()
            await asyncio.gather(*self._restarts, return_exceptions=True)

    async def _at(self, times: int, what: Callable[[], Any]) -> None:
        for _ in range(times):
            await asyncio.sleep(self.chance.uniform(0.3, 0.7) * self.plan.seconds / times)
            await what()

    def _free(self) -> list[Machine]:
        """Hosts that serve and that nothing happens to yet."""
        return [m for m in self.cluster.machines if m.is_serving and m.installed.folder.name not in self._busy]

    async def _kill_hosts(self) -> None:
        late = (False, True)
        end = time.monotonic() + self.plan.seconds
        while time.monotonic() < end:
            await asyncio.sleep(self.plan.kill_every_s)
            free = self._free()
            if len(free) < 2:  # on a busy machine a start takes longer than the time between two kills
                self.done["kills left out"] += 1
                continue
            machine = self.chance.choice(free)
            how = self.chance.choice(("kill", "crash", "lose_power"))
            pause_s = LEASE_S + self.chance.uniform(2, 8) if self.chance.choice(late) else self.chance.uniform(1, 5)
            self._busy.add(machine.installed.folder.name)
            self.done[how] += 1
            self.done["kills"] += 1
            self.say(f"{machine.installed.folder.name}: {how}, starts again after {pause_s:.0f} s")
            await {"kill": machine.kill, "crash": machine.crash, "lose_power": machine.lose_power}[how]()
            self._restarts.add(asyncio.create_task(self._start_again(machine, pause_s)))

    async def _start_again(self, machine: Machine, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        while True:
            try:
                await machine.start()
            except AssertionError:  # the database is away, and it says so
                await asyncio.sleep(1)
            else:
                break
        self._busy.discard(machine.installed.folder.name)
        self.say(f"{machine.installed.folder.name}: serves again")

    async def _kill_database(self) -> None:
        away_s = self.chance.uniform(0.5, 6)
        self.done["database killed"] += 1
        self.say(f"database: killed, starts again after {away_s:.1f} s")
        await self.cluster.server.kill()
        await asyncio.sleep(away_s)
        await self.cluster.server.start()
        await self._measure("database", self._free)

    async def _cut_network(self) -> None:
        while not (free := self._free()):  # noqa: ASYNC110 - several things end it
            await asyncio.sleep(0.2)
        machine = self.chance.choice(free)
        self._busy.add(machine.installed.folder.name)
        self.done["network cut"] += 1
        self.say(f"{machine.installed.folder.name}: no network to the database for {self.plan.cut_s:.0f} s")
        await machine.cut()
        await asyncio.sleep(self.plan.cut_s)
        await machine.mend()
        await self._measure("network", lambda: [machine])
        self._busy.discard(machine.installed.folder.name)

    async def _measure(self, what: str, machines: Callable[[], Sequence[Machine]]) -> None:
        since = time.monotonic()
        found = await self.probes.back([m for m in machines() if m.is_serving and not m.is_cut], since)
        self.back_s.setdefault(what, []).append(round(found, 1))
        self.say(f"{what}: back for all after {found:.1f} s")


def people_of(plan: Plan) -> tuple[list[str], list[str], list[tuple[str, Profile, str]]]:
    """The Slack ids of analysts and of those who decide, and all users of core."""
    analysts = [f"U0ANALYST{number:02}" for number in range(plan.analysts)]
    leads = [f"U0LEAD{number:02}" for number in range(2)]
    users = [user for user in USERS if user[1] in ("source", "service")]
    users += [(one.lower(), "analyst", one) for one in analysts]
    users += [(one.lower(), "org-admin", one) for one in leads]
    users += [("lea", "org-admin", "")]
    return analysts, leads, users


@asynccontextmanager
async def prepared(folder: Path, plan: Plan, *, in_namespaces: bool) -> AsyncIterator[tuple[Cluster, Scene, str]]:
    """Slack with its people, the database, and the hosts, which serve."""
    analysts, leads, users = people_of(plan)
    async with AsyncExitStack() as stack:
        emulator = SlackEmulator(rates=False)
        add_people_and_channels(emulator, {one: (one.lower(), None, 2) for one in (*analysts, *leads, *PEOPLE)})
        for channel in CHANNELS:
            members = [*analysts, *leads, emulator.bot_user_id]
            emulator.add_channel(channel, name=channel[2:].lower(), members=members)
        await stack.enter_async_context(emulator)
        address = "127.0.0.1"
        if in_namespaces:
            bridge = Bridge(emulator.url)
            await asyncio.to_thread(bridge.open)
            stack.callback(bridge.close)
            address = GATEWAY
        server = PostgresqlServer(address=address)
        stack.push_async_callback(server.close)
        await server.create()
        write_responders(folder)
        cluster = Cluster(folder, emulator, server)
        await add_users(cluster, PostgresqlUrl(server.url(SCHEMA)), users)
        await cluster.add_machines(plan.hosts, in_namespaces=in_namespaces)
        for machine in cluster.machines:
            stack.push_async_callback(machine.close)
        await cluster.machines[0].start()  # the bot's very first start remembers where core's feed stands
        await asyncio.gather(*(machine.start() for machine in cluster.machines[1:]))
        people = {
            one: await stack.enter_async_context(Person(emulator.url, emulator.page_token, one))
            for one in (*analysts, *leads)
        }
        chance = random.Random(SEED)  # noqa: S311 - chance that can be repeated is the point
        scene = Scene(
            cluster,
            emulator,
            people,
            chance,
            is_together=False,
            analysts=analysts,
            kinds=KINDS,
            pace_s=plan.pace_s,
            patience_s=PATIENCE_S,
        )
        stack.push_async_callback(scene.close)
        for lead in leads:
            deciding = asyncio.create_task(scene.decide(lead))
            stack.push_async_callback(cancelled, deciding)
        yield cluster, scene, leads[0]


async def run(folder: Path, plan: Plan, say: Callable[[str], None], *, in_namespaces: bool) -> dict[str, Any]:
    """What happened; `wrong` lists what must not be."""
    async with prepared(folder, plan, in_namespaces=in_namespaces) as (cluster, scene, lead):
        probes = Probes(cluster)
        trouble = Trouble(cluster, probes, plan, random.Random(f"{SEED} trouble"), say)  # noqa: S311 - as above
        probing = asyncio.create_task(probes.run())
        try:
            async with asyncio.TaskGroup() as group:
                troubling = group.create_task(trouble.run())
                group.create_task(scene.work(troubling.done))
        finally:
            probing.cancel()
            with suppress(asyncio.CancelledError):
                await probing
        say("all is well again")
        await until(lambda: not unsettled(cluster), "an inbox in which nothing is left to do")
        expected = await truth(scene)
        wrong = [*await slack_shows(expected, scene, scene.people[lead]), *probes.faults(), *probes.lost()]
        try:
            counts = check_runs(scene, expected.actions, LOST)
        except AssertionError as error:
            wrong.append(f"runs: {error}")
            counts = {}
        codes = [await machine.stop() for machine in cluster.machines]
        wrong += [f"a host ended with {code}" for code in codes if code]
        wrong += [f"process {left}" for left in cluster.processes()]
        wrong += faults_in(cluster)
        events = events_of(cluster)
        programs = [len(file.read_text().splitlines()) for file in cluster.counts.iterdir()]
        failed = [a for name in probes.answers.values() for a in name if a.status == 503]
        slowest = max(failed, key=lambda a: a.took_s, default=None)
        return {
            **dict(trouble.done),
            "actions": len(expected.actions),
            "ended": sum(action.end_date is not None for action in expected.actions),
            "twice": sum(n > 1 for n in programs) + sum(n > 1 for (_, what), n in events.items() if "ended" in what),
            "lost with their host": counts.get("lost with their host", "?"),
            "messages": sum(sum(thread.values()) for thread in expected.threads.values()),
            "messages wrong": len(expected.differences(scene.people[lead].live_view)),
            "probes answered": sum(len(answers) for answers in probes.answers.values()),
            "of these 503": len(failed),
            "slowest 503 after s": round(slowest.took_s, 1) if slowest else 0,
            "sentences": sorted({a.sentence for a in failed}),
            "acknowledged alerts": len(probes.acknowledged),
            # Of actions whose end another host stored: the next start removes them.
            "job folders left": len(cluster.job_folders()),
            "back after s": trouble.back_s,
            **{name: counts[name] for name in ("requests", "acknowledged", "refused") if name in counts},
            "wrong": wrong,
        }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bot.chaos_hosts", description=__doc__)
    parser.add_argument("--seconds", type=float, default=Plan.seconds, help="for how long something goes wrong")
    parser.add_argument("--processes", action="store_true", help="no namespaces, even where they work")
    parser.add_argument("--short", action="store_true", help="as the test does")
    parser.add_argument("--keep", type=Path, help="keep settings and logs in this new folder")
    args = parser.parse_args()
    plan = SHORT if args.short else Plan(seconds=args.seconds)
    in_namespaces = not args.processes and namespaces_work()
    began = time.monotonic()

    def say(what: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began:6.1f} {what}\n")

    with tempfile.TemporaryDirectory(prefix="responder-bot-chaos-") as folder:
        where = args.keep or Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        found = asyncio.run(run(where, plan, say, in_namespaces=in_namespaces))
    found = {"seed": SEED, "namespaces": in_namespaces, "load": os.getloadavg()[0], **found}
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
