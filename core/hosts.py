"""This core among all cores on the database: its lease, and which others have lost theirs; hosts as people see them."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from core.audit import trail
from core.authorization import Caller
from core.common import leases
from core.common.clock import Clock, as_time, boot_ms
from core.common.database import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.common.grouping import grouped
from core.common.leases import Leases
from core.common.private_files import read_or_create
from core.common.words import count
from core.models import CoreEntry, EngineLoad, HostEntry
from core.store import actions as stored_actions
from core.store import hosts as stored

LEASE_MS = 15_000  # as long as the restart of a database may take: what runs on a host that is lost ends as a Failure
STOPPED_LEASE_MS = 60_000  # the same for a core that was stopped while programs ran, since it is about to start again
AHEAD_MS = 10_000  # a clock of another host that is further ahead is reported
BEHIND_MS = AHEAD_MS + LEASE_MS  # the same if it is behind; a renewal may have been a while ago
CLOCKS_DIFFER_MS = 60_000  # what the clocks of hosts may differ by
LEASE_LEFT_MS = LEASE_MS // 2  # with less than this left, the lease is renewed before anything is dispatched

log = structlog.get_logger()


@dataclass(frozen=True)
class Host:
    """A machine, or a container, on which cores run: cores of one host see the same job folders and programs."""

    name: str
    """For people."""
    id: str
    """Two hosts never have the same, even if somebody gave them one name."""

    @classmethod
    def of(cls, name: str, jobs: Path | None) -> "Host":
        """The host of that name with that folder of job folders, if it has any. Raises OSError."""
        mark = "" if jobs is None else read_or_create(jobs, "host-id")
        return cls(name, hashlib.sha256(f"{mark}\0{name}".encode()).hexdigest()[:16])


class Hosts:
    """Holds this core's lease, and tells which leases of other cores have expired."""

    def __init__(self, database: Database, host: Host, clock: Clock, *, lease_clock: Clock = boot_ms) -> None:
        """`lease_clock` measures how long ago something was, in ms; nothing but this core reads its values."""
        self.host = host
        self.draining = False
        """Whether this core is to take no new work, finish what runs, and end."""
        self.elapsed_ms = lease_clock
        """The clock of leases, to measure how long something lasts."""
        self._leases = Leases(database, "owner", LEASE_MS, clock, lease_clock)
        self._database = database
        self._clock = clock
        self._look_began_at = clock()
        self._lost: Sequence[Row] = ()
        self._ahead_ms: dict[str, int] = {}
        """By host id, how far its clock is at least ahead of this one's; below 0, how far it is behind."""

    @property
    def holder(self) -> str:
        """The lease holder: this process, until it loses its lease; then it goes on under another name."""
        return self._leases.holder

    async def open(self) -> None:
        """Take a lease."""
        await self._leases.hold(lambda tx: self._register(tx, self.holder))

    async def close(self) -> None:
        """Give up what is not dispatched and what remote engines run, and end the lease.

        While programs of this host go on, the lease stays for STOPPED_LEASE_MS, so that the next core of this host
        adopts them.
        """
        holder = self.holder

        def work(tx: Transaction) -> None:
            stored_actions.release_waiting(tx, holder)
            stored.touch_catalogues(tx, self.host.id, self._clock())
            here = 0
            for row in stored_actions.dispatched_by(tx, holder):
                if row["host_id"] is None:
                    stored_actions.change(tx, row["id"], owner=None)
                else:
                    here += 1
            if here:
                stored.stop(tx, holder, self._clock() + STOPPED_LEASE_MS)
            else:
                stored.remove(tx, holder)

        await self._database.transaction(work)

    async def renew(self) -> bool:
        """Renew the lease; False if it was lost. This core then has a new lease that holds nothing yet."""
        following = leases.new_holder()

        def work(tx: Transaction) -> Row | None:
            row = self._leases.renew(tx)
            if row is None:
                self._register(tx, following)
            return row

        row = await self._leases.hold(work)
        if row is None:
            log.warning("lease_lost", host=self.host.name)
            self._leases.holder = following
            return False
        self.draining = bool(row["draining"])
        return True

    async def drain(self) -> None:
        """Take no more work, and end once what runs has ended."""
        await self._database.transaction(lambda tx: stored.set_draining(tx, self.holder, draining=True))
        await self.read_draining()

    async def read_draining(self) -> None:
        """Read again whether this core is to drain."""
        row = await self._database.read(self._leases.find)
        self.draining = row is not None and bool(row["draining"])

    async def problems(self) -> list[str]:
        """A sentence for each host that was lost, has a wrong clock, or has the name of another."""
        cores, lost = await self._database.read(lambda reads: (stored.all_cores(reads), stored.lost(reads)))
        running = {row["host_id"]: row["host"] for row in cores if not row["stopped"] and not self.is_over(row)}
        problems = []
        for row in lost:
            then = ". Start it again; otherwise this"
            if row["host"] in running.values():  # such as where the database moved to another machine
                then = "; another of that name runs. This"
            ended = f"{count(row['ended'], 'action')} ended with it{then} is reported for 24 hours."
            problems.append(f"Host {row['host']} was lost at {as_time(row['at'])}, and {ended}")
        for host_id, ahead_ms in self._ahead_ms.items():
            if host_id in running and not -BEHIND_MS <= ahead_ms <= AHEAD_MS:
                seconds, which = abs(ahead_ms) // 1000, "ahead of" if ahead_ms > 0 else "behind"
                sentence = f"The clock of host {running[host_id]} is some {seconds} s {which} that of {self.host.name}"
                problems.append(f"{sentence}; keep both in step, with NTP for instance.")
        # One that nobody here has seen renew a lease may have left.
        seen = [name for host_id, name in running.items() if self.is_here(host_id) or host_id in self._ahead_ms]
        for name, hosts in Counter(seen).items():
            if hosts > 1:
                problems.append(f"{hosts} hosts are called {name}; give each another [core] host_name.")
        return problems

    async def up(self) -> Mapping[str, bool]:
        """Each host by name, and whether a core of it holds its lease."""
        cores, lost = await self._database.read(lambda reads: (stored.all_cores(reads), stored.lost(reads)))
        up = {row["host"]: False for row in lost}
        for row in cores:
            if row["host"]:
                up[row["host"]] = up.get(row["host"], False) or not self.is_over(row)
        return up

    def is_late(self) -> bool:
        """Whether this core's lease may have expired for others, such as after the process was frozen."""
        return not self._leases.left_ms()

    def keep_lease(self, tx: Transaction) -> bool:
        """Whether this core has its lease, renewed if it would end soon; ask in the transaction that depends on it."""
        row = self._leases.find(tx)
        if row is not None and row["lease_until"] < self._clock() + LEASE_LEFT_MS:
            self._leases.renew(tx)
        return row is not None

    async def look(self) -> list[str]:
        """The holders of expired leases, and of actions without a lease, from which this core is to take over.

        A live core of another host takes over from the dead cores of its host.
        """

        def read(tx: Reads) -> tuple[list[Row], list[Row], list[str]]:
            return stored.all_cores(tx), stored.lost(tx), stored.without_lease(tx)

        began_at = self._clock()
        rows, self._lost, without = await self._database.snapshot(read)
        renewed = [row for row in self._leases.look(rows) if row["holder"] != self.holder and not row["stopped"]]
        for row in renewed:
            # It was renewed after the last look began; a slow database must not look like a wrong clock.
            renewed_at = row["lease_until"] - LEASE_MS
            self._ahead_ms[row["host_id"]] = max(renewed_at - self._clock(), min(renewed_at - self._look_began_at, 0))
        self._look_began_at = began_at
        live = self.live_hosts(rows)
        over = [row["holder"] for row in rows if self.is_over(row) and not self._is_left_to(live, row["host_id"])]
        return [*over, *(holder for holder in without if holder != self.holder)]

    def live_hosts(self, rows: Iterable[Row]) -> frozenset[str]:
        """The ids of the hosts on which one of these cores holds its lease."""
        return frozenset(row["host_id"] for row in rows if not self.is_over(row))

    def _is_left_to(self, live: Collection[str], host_id: str) -> bool:
        return not self.is_here(host_id) and host_id in live

    def is_here(self, host_id: str) -> bool:
        return host_id == self.host.id

    def find_over(self, tx: Transaction, holder: str) -> tuple[bool, Row | None, Collection[str]]:
        """Whether this core is to take over from that holder; its row; the ids of live hosts. As of the last `look`."""
        cores = stored.all_cores(tx)
        row, live = next((core for core in cores if core["holder"] == holder), None), self.live_hosts(cores)
        is_over = row is None or (self.is_over(row) and not self._is_left_to(live, row["host_id"]))
        return is_over, row, live

    def why_no_runs(self) -> Mapping[str, str]:
        """Other hosts by id, as of the last look: why one takes no runs, such as "it is draining", or ""."""
        reasons = {row["host_id"]: f"it was lost at {as_time(row['at'])}" for row in self._lost}
        for row in sorted(self._leases.rows, key=lambda row: not row["draining"]):
            if row["host_id"] == self.host.id:
                continue
            if row["stopped"] or self.is_over(row):
                reasons.setdefault(row["host_id"], "it does not answer")
            else:
                reasons[row["host_id"]] = "it is draining" if row["draining"] else ""
        return reasons

    def common_clock(self) -> int:
        """What the slowest clock of the hosts says, as of the last look: cores that count by it agree (ms)."""
        live = self.live_hosts(self._leases.rows)
        return self._clock() + min([0, *(ahead_ms for id_, ahead_ms in self._ahead_ms.items() if id_ in live)])

    def others(self) -> Sequence[Row]:
        """The other cores as of the last look."""
        return [row for row in self._leases.rows if row["holder"] != self.holder]

    def _register(self, tx: Transaction, holder: str) -> None:
        self._leases.take(tx, holder, self.host.name, host_id=self.host.id, draining=int(self.draining))
        stored.find_again(tx, self.host.id)

    def is_over(self, row: Row) -> bool:
        """Whether this core has seen a lease expire; False if it was renewed since the last look."""
        if row["holder"] == self.holder:
            return False
        if self.is_here(row["host_id"]) and (row["stopped"] or leases.is_dead(row["holder"])):
            return True
        return self._leases.silent_ms(row) >= (STOPPED_LEASE_MS if row["stopped"] else LEASE_MS)


def is_long_silent(row: Row, now: int) -> bool:
    """Whether a core's lease seems to have expired, by the time of day, which may be a minute off."""
    return int(row["lease_until"]) + CLOCKS_DIFFER_MS < now


# --- as people see them, and draining ---------------------------------------------------------------------------------


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
    rows = stored.all_cores(reads)
    found = grouped(((row["host"], row["host_id"]), _core(reads, row, is_over(row))) for row in rows)
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
