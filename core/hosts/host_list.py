"""The hosts on a database as people see them, and draining."""

from collections import Counter
from collections.abc import Callable, Sequence

from core.audit import trail
from core.authorization import Caller
from core.common.clock import Clock
from core.common.database import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.hosts.hosts import Hosts, is_long_silent
from core.models import CoreEntry, EngineLoad, HostEntry
from core.store import actions as stored_actions
from core.store import hosts as stored

LISTED_ACTIONS = 100
_BEST_FIRST = ("running", "draining", "stopped", "silent")


class HostList:
    """Lists hosts, and drains cores, for the API."""

    def __init__(self, hosts: Hosts, database: Database, clock: Clock) -> None:
        self._hosts = hosts
        self._database = database
        self._clock = clock

    async def all(self) -> list[HostEntry]:
        return await self._database.read(lambda reads: list_hosts(reads, self._hosts.is_over))

    async def drain(self, caller: Caller, name: str, core_id: str = "", *, cancel: bool = False) -> list[HostEntry]:
        """As the function `drain`; also raises ResponderBotError("forbidden") unless the caller is an org-admin."""
        if caller.profile != "org-admin":
            what = "go on taking runs" if cancel else "take no more runs"
            sentence = f"You are not authorized to have a host {what}, only an org-admin is."
            raise ResponderBotError("forbidden", sentence)

        def work(tx: Transaction) -> list[HostEntry]:
            drain(tx, self._clock(), caller.login, name, core_id, cancel=cancel)
            return [host for host in list_hosts(tx, self._hosts.is_over) if host.name == name]

        hosts = await self._database.transaction(work)
        await self._hosts.read_draining()
        return hosts


def drain(tx: Transaction, now: int, by: str, name: str, core_id: str = "", *, cancel: bool = False) -> int:
    """Drain the cores of a host, or the one with that id: they take no more runs and end once theirs have.

    `by` is who decides that. `cancel` lets them take runs again. Returns the number of cores. Raises
    ResponderBotError("not_found") if there is none, and "conflict" if several hosts have that name.
    """
    cores = [row for row in stored.all_cores(tx) if row["host"] == name and core_id in ("", _short(row["holder"]))]
    if not cores:
        which = f"core {core_id} on a host {name}" if core_id else f"host {name} with a core"
        raise ResponderBotError("not_found", f"There is no {which}; `responder-bot hosts` lists them.")
    live = {row["host_id"] for row in cores if not row["stopped"] and not is_long_silent(row, now)}
    if len(live) > 1 and not core_id:
        sentence = (
            f"{len(live)} hosts are called {name}: name one core with --core, as `responder-bot hosts` shows it, or"
            " give each host another [core] host_name."
        )
        raise ResponderBotError("conflict", sentence)
    for row in cores:
        stored.set_draining(tx, row["holder"], draining=not cancel)
    trail.record(tx, now, "host.resumed" if cancel else "host.drained", by=by, object=name, core=core_id)
    return len(cores)


def list_hosts(reads: Reads, is_over: Callable[[Row], bool]) -> list[HostEntry]:
    """All hosts with their cores, by name; `is_over` tells whether a core's lease has expired."""
    found: dict[tuple[str, str], list[CoreEntry]] = {}
    for row in stored.all_cores(reads):
        found.setdefault((row["host"], row["host_id"]), []).append(_core(reads, row, is_over(row)))
    hosts = [
        HostEntry(name=name, state=min((core.state for core in cores), key=_BEST_FIRST.index), cores=cores)
        for (name, _), cores in found.items()
    ]
    hosts += [
        HostEntry(name=row["host"], state="lost", lost_at=row["at"], actions_ended=row["ended"], cores=[])
        for row in stored.lost(reads)
    ]
    return sorted(hosts, key=lambda host: (host.name, host.state))


def _core(reads: Reads, row: Row, is_over: bool) -> CoreEntry:
    held = stored_actions.dispatched_by(reads, row["holder"])
    running = Counter(action["engine_name"] for action in held)
    state = "stopped" if row["stopped"] else "silent" if is_over else "draining" if row["draining"] else "running"
    return CoreEntry(
        id=_short(row["holder"]),
        version=row["version"],
        state=state,
        started_at=row["started_at"],
        lease_until=row["lease_until"],
        engines=_engines(reads, row["host_id"], running),
        actions=[f"~{action['id']}" for action in held[:LISTED_ACTIONS]],
    )


def _engines(reads: Reads, host_id: str, running: Counter[str]) -> Sequence[EngineLoad]:
    return [
        EngineLoad(name=row["engine"], up=bool(row["up"]), running=running[row["engine"]], slots=row["capacity"])
        for row in stored.engines_of(reads, host_id)
    ]


def _short(holder: str) -> str:
    """The id of a core for people: the last part of its lease's."""
    return holder.rpartition(":")[2][-8:]
