"""Failover of the bot: from the end of the host that sends, without a word to anybody, to the next card from another.

The hosts have namespaces of their own where the machine allows it, so that neither sees that the other's processes are
gone.
"""

import os
import time
from pathlib import Path

from core.client import CoreClient
from tests.bench import comparison
from tests.bench.comparison import Goal, Row, Sample, Scale, Spread
from tests.bench.processes import CLIENT_CPUS, SERVER_CPUS, on_cpus
from tests.bot.chaos import CHANNELS, SOURCES
from tests.bot.chaos_hosts import Cluster, Plan, prepared
from tests.bot.chaos_scene import Scene
from tests.bot.machines import Machine, namespaces_work
from tests.bot.people import card_of
from tests.bot.running import ALERT
from tests.core.core_process import until

CARD, KILLED = "card of an alert", "the same, the bot that sends was killed"
LIMIT_S = 10.0
WAIT_S = 60.0


async def measure(folder: Path, scale: Scale) -> list[Row]:
    with on_cpus(SERVER_CPUS | CLIENT_CPUS):
        async with prepared(folder, Plan(hosts=2, analysts=1), in_namespaces=namespaces_work()) as (
            cluster,
            scene,
            who,
        ):
            measured = _Measured(cluster, scene, who)
            found = await comparison.interleaved(
                {CARD: lambda: measured.card(kill=False), KILLED: lambda: measured.card(kill=True)}, scale.rounds
            )
    ratio = Spread.of([sample / LIMIT_S for sample in found[KILLED]])
    ours, noise = comparison.milliseconds(found[KILLED]), comparison.noise(found[KILLED])
    note = f"{comparison.milliseconds(found[CARD])} without a kill"
    name = "from the kill of the host that sends to the next card"
    return [Row(name, ours, "the goal", f"{LIMIT_S * 1000:g} ms", ratio, noise, Goal("at most", 1), note)]


class _Measured:
    """Alerts and their cards."""

    def __init__(self, cluster: Cluster, scene: Scene, who: str) -> None:
        self._cluster, self._person = cluster, scene.people[who]
        self._number = 0

    async def card(self, *, kill: bool) -> Sample:
        """Seconds from an alert, or from the kill before it, to its card."""
        await until(lambda: self._leader() is not None, "a bot that sends")
        leader = self._leader()
        assert leader is not None
        other = next(machine for machine in self._cluster.machines if machine is not leader)
        self._number += 1
        body = {**ALERT, "source": SOURCES[0], "sourceRef": f"{self._number}", "title": f"Failover {self._number}"}
        began = time.perf_counter()
        if kill:
            await leader.lose_power()
        async with CoreClient(other.installed.core_url, self._cluster.keys["sensor"]) as core:
            alert = await core.create_alert(body)
        await self._person.until(card_of(alert, channel=CHANNELS[0]), WAIT_S)
        took = time.perf_counter() - began
        if kill:
            await leader.start()
        return took

    def _leader(self) -> Machine | None:
        """The host whose bot holds the lease."""
        rows = self._cluster.rows("SELECT holder FROM replica WHERE leads = 1")
        return next((m for m in self._cluster.machines for (holder,) in rows if _process(m) in str(holder)), None)


def _process(machine: Machine) -> str:
    """The part of a lease holder's name that says which process it is."""
    if machine.serve is None or not machine.is_serving:
        return "-"
    outside = machine.serve.pid
    status = Path(f"/proc/{outside}/status").read_text()
    inside = next(line for line in status.splitlines() if line.startswith("NSpid:")).split()[-1]
    return f"{os.readlink(f'/proc/{outside}/ns/pid').removeprefix('pid:')}:{inside}:"
