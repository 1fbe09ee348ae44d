"""Core's composition root: creates its services, engines and routes, and serves them."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from starlette.types import ASGIApp

from core import engines
from core.actions.approvals import Approvals
from core.actions.blocklist import STORE_EVERY_S, BlockLists
from core.actions.bulks import Bulks
from core.actions.documents import Documents
from core.actions.due import Due
from core.actions.lifecycle import Lifecycle
from core.actions.measures import Measures, Undos
from core.actions.parts import Parts, Service
from core.actions.runner import Runner
from core.actions.service import Actions
from core.api import actions as actions_api
from core.api import blocklist as blocklist_api
from core.api import events as events_api
from core.api import hosts as hosts_api
from core.api import ingest as ingest_api
from core.api import people as people_api
from core.api import records as records_api
from core.api import responders as responders_api
from core.api import retention as retention_api
from core.api.aliases import alias, v1
from core.api.aliases import query as query_api
from core.api.http import health, openapi
from core.api.http.endpoint import Endpoint
from core.api.http.health import Starting
from core.api.http.router import Router
from core.audit.reader import AuditReader, log_head_forever
from core.audit.trail import Refusals, record_settings
from core.authorization import full_login
from core.common import systemd
from core.common.clock import DAY_MS, Clock, as_time, now_ms
from core.common.database import Database, Reads
from core.common.database.location import Location, files_of
from core.common.database.schema import Opening
from core.common.errors import ResponderBotError
from core.common.grouping import grouped
from core.common.listener import GRACE_S, bind, http_server
from core.common.process_identity import own_version
from core.common.tasks import cancel_and_wait, repeat
from core.common.words import some_of
from core.engines import job_folder
from core.engines.base import Catalogue, Engine
from core.engines.confinement import Confinement, exposed, unavailable
from core.engines.definitions import BUNDLED
from core.hosts import CLOCKS_DIFFER_MS, Host, HostList, Hosts
from core.models import Check
from core.people import NOTE_EVERY_S, People
from core.protection import Blockable, Parsed, ProtectedTargets, look_of
from core.records.alerts import Alerts
from core.records.cases import Cases, CaseTemplates
from core.records.clearance import find_level
from core.records.comments import Comments
from core.records.events import Feed
from core.responders.guards import Guards
from core.responders.registry import Registry
from core.retention.pruning import Retention
from core.settings import OWN_ENGINE, CoreSettings, ResponderSection, folder_problems, host_name, secret_problems
from core.sources.ingest import Sources
from core.store import actions as stored_actions
from core.store import events
from core.store import hosts as stored_hosts
from core.store.database.opening import open_database

HEALTH_TIMEOUT_S = 2.0  # probes give up after some seconds
PRUNE_EVERY_S = 3_600.0
EVENTS_LOOKED_AT = 1_000  # the newest, which a clock that was wrong may have made
RUNS_NAMED = 10
LOST_HOST_MS = DAY_MS  # how long a lost host is reported

Open = Callable[[Location, Opening], Database]


@dataclass(frozen=True)
class Core:
    """A running core, made by `Core.open`."""

    settings: CoreSettings
    database: Database
    people: People
    feed: Feed
    registry: Registry
    asgi: ASGIApp
    endpoints: Sequence[Endpoint]
    """The routes in the OpenAPI description, without aliases."""
    show_health: Callable[[str, Callable[[], Awaitable[str]]], None]
    """Make `/health` show another component of this process: its name, and what is wrong with it ("" if nothing)."""
    drain: Callable[[], Awaitable[None]]
    """Have this core take no more runs. Raises ResponderBotError."""
    drained: asyncio.Event
    """Set once core is draining and runs nothing any more, so that it may end."""
    _stack: AsyncExitStack

    @classmethod
    async def open(
        cls,
        settings: CoreSettings,
        clock: Clock = now_ms,
        *,
        open_: Open = open_database,
        opening: Opening | None = None,
    ) -> "Core":
        """Open the database and the engines, and create the services. Raises ResponderBotError."""
        stack = AsyncExitStack()
        try:
            database = await (opening or Opening()).run(partial(open_, settings.core.database))
            stack.push_async_callback(database.close)
            return await _compose(settings, database, clock, stack)
        except BaseException:
            await stack.aclose()
            raise

    async def until_ended(self) -> None:
        """Wait until this core is drained. Raises ResponderBotError once the database has lost events."""
        draining, losing = (asyncio.create_task(event.wait()) for event in (self.drained, self.feed.newest.went_back))
        try:
            await asyncio.wait({draining, losing}, return_when=asyncio.FIRST_COMPLETED)
            if losing.done():
                raise self.feed.newest.error()
        finally:
            await cancel_and_wait(draining, losing)

    async def until_stopped(self) -> None:
        """Wait for SIGINT or SIGTERM, or as `until_ended` does.

        Process 1 of a container drains at SIGTERM, since its end would end its runs; a second signal stops it at once.
        """
        stopping, ending = asyncio.create_task(self._stopped()), asyncio.create_task(self.until_ended())
        try:
            await asyncio.wait({stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                ending.result()
        finally:
            await cancel_and_wait(stopping, ending)

    async def _stopped(self) -> None:
        if await stop_signal() == signal.SIGTERM and os.getpid() == 1:
            try:
                await self.drain()
            except ResponderBotError as error:
                structlog.get_logger("core.app").warning("drain_failed", reason=error.message)
                return
            await stop_signal()

    async def close(self) -> None:
        """Close everything in reverse order. Running responders go on."""
        await self._stack.aclose()


@asynccontextmanager
async def serving(
    settings: CoreSettings, *, grace_s: float = GRACE_S, open_: Open = open_database
) -> AsyncIterator[tuple[Core, str]]:
    """Serve core on `[core] host` and `port` in this event loop; gives it and its URL once it is open.

    The port is bound before the database is opened, so that a second core on the same port fails at once, and `/livez`
    answers while the database is migrated.
    """
    sock = bind(settings.core.host, settings.core.port)
    opening, core = Opening(), None
    starting = Starting(opening)
    try:
        async with http_server(starting, sock, grace_s=grace_s) as url:
            core = await Core.open(settings, open_=open_, opening=opening)
            starting.app = core.asgi
            structlog.get_logger("core.app").info("listening", url=url, version=own_version())
            async with systemd.alive():
                yield core, url
    finally:
        if core is not None:
            await core.close()


async def serve(settings: CoreSettings, *, ready: Callable[[str], None] = lambda _: None) -> None:
    """Serve core until SIGINT or SIGTERM, or until it is drained; `ready` is called with the URL.

    Raises ResponderBotError if it can't start, or if the database has lost events.
    """
    async with serving(settings) as (core, url):
        ready(url)
        await core.until_stopped()


async def stop_signal() -> signal.Signals:
    """Wait for SIGINT or SIGTERM, and return which it was."""
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[signal.Signals] = loop.create_future()

    def stop(number: signal.Signals) -> None:
        if not stopped.done():
            stopped.set_result(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    try:
        return await stopped
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)


async def _compose(settings: CoreSettings, database: Database, clock: Clock, stack: AsyncExitStack) -> Core:
    def start(work: Coroutine[Any, Any, None]) -> None:
        stack.push_async_callback(cancel_and_wait, asyncio.create_task(work))

    section, domain = settings.core, settings.core.user_domain
    people = People(database, domain, clock)
    feed = await Feed.open(database)

    for problem in folder_problems(settings):
        raise ResponderBotError("unavailable", problem)
    lists = BlockLists(settings, database, clock)
    made = engines.make(settings, lists.around)
    for engine in made:
        stack.push_async_callback(engine.close)
    running_here = [engine.name for engine in made if engine.runs_here]
    protected = ProtectedTargets(settings.protect.artifacts)
    _warn_of_unreadable(settings, protected)
    host = host_of(settings, made)
    hosts = Hosts(database, host, clock)
    sections = {name: _with_full_logins(one, domain) for name, one in settings.responder.items()}
    most = settings.blocklist.max_entries
    guards = Guards(sections, hosts.common_clock, protected=protected, user_domain=domain, max_blocked=most)
    blockable = Blockable(settings.blocklist.never)
    registry = Registry(made, sections, database, clock, host, blockable)
    stack.push_async_callback(registry.close)
    await registry.open()
    await record_settings(database, clock, host.name, settings.model_dump())
    acting = Parts(database, registry, guards, clock)
    lifecycle = Lifecycle(acting, hosts, organisation=section.organisation, product=section.product)
    await asyncio.to_thread(look_of, Parsed("text", ""))  # what these load takes a while
    await asyncio.to_thread(blockable.why_not, Parsed("host", "example.com"))
    await lifecycle.end_restored()
    if running_here:
        await feed.newest.remember_in(section.jobs)
    stack.push_async_callback(feed.newest.remember)
    start(feed.newest.watch())
    approvals = Approvals(acting, lifecycle)
    runner = Runner(lifecycle, registry, hosts, database)
    stack.push_async_callback(runner.close)
    await runner.open()
    actions = Actions(acting, lifecycle, approvals, runner, feed)
    undos = Undos(acting, actions.runs)
    due = Due(database, clock, {"undo": undos.undo_due, "approval": approvals.expire})
    await due.look("approval")  # before any vote comes
    start(due.run())
    measures = Measures(acting, undos)
    retention = Retention.of(settings, database, clock)
    keeping = running_here if section.keep_jobs else []
    start(repeat("pruning", PRUNE_EVERY_S, partial(_prune, settings, retention, database, clock, keeping)))
    start(repeat("readers of block lists", STORE_EVERY_S, lists.store_reads))
    stack.push_async_callback(lists.store_reads)
    start(log_head_forever(database))
    start(repeat("uses of keys", NOTE_EVERY_S, people.note_uses))

    probe = health.StoreProbe(database)
    jobs = health.JobFoldersProbe(lambda: job_folder.problem(section.jobs) if running_here else "")
    metrics = health.Metrics(
        database,
        probe,
        lambda: ((s.engine.name, s.up) for s in registry.states() if s.engine.name != OWN_ENGINE),
        hosts.up,
        jobs,
        retention.counts,
        measures.counts,
    )
    sources = Sources(settings.source, settings.responder, database, clock, domain)
    await sources.open()
    start(sources.run())
    comments, alerts = Comments(database, clock), Alerts(database, clock, section.organisation)
    cases, templates = Cases(database, clock), CaseTemplates(database, clock)
    _warn_of_confinement(settings, made)
    checks = _Health(settings, made, acting, jobs, hosts=hosts, due=due, undos=undos, sources=sources, lists=lists)

    table: list[Endpoint] = [
        *actions_api.action_endpoints(actions, undos),
        *actions_api.measure_endpoints(measures),
        *blocklist_api.endpoints(lists),
        *actions_api.bulk_endpoints(Bulks(acting, actions.runs, approvals, lifecycle)),
        *responders_api.endpoints(registry, guards, actions, database),
        *records_api.alert_endpoints(alerts),
        *ingest_api.endpoints(sources),
        *records_api.case_endpoints(cases),
        *records_api.comment_endpoints(comments),
        *retention_api.endpoints(retention, AuditReader(database, clock, find_level)),
        *records_api.file_endpoints(database),
        *records_api.case_template_endpoints(templates),
        *events_api.endpoints(feed, Documents(acting, feed), clock, metrics.set_event_lag),
        *people_api.endpoints(people, section.organisation),
        *hosts_api.endpoints(HostList(hosts, database, clock)),
        *health.endpoints(probe, metrics, checks.parts, paths_of(settings), section.metrics_token),
    ]
    table += openapi.endpoints(table, own_version())
    public = alias.endpoints(table, section.vendor_alias)
    public += [*v1.connector_endpoints(public), *v1.endpoints(table), *v1.status_endpoints()]
    public += records_api.version_1_of_files(database)
    public += query_api.endpoints(alerts, cases, comments, templates, actions, people, database, section.vendor_alias)
    router = Router(
        [*table, *public],
        people,
        body_limit_bytes=section.body_limit_bytes,
        observe=metrics.observe,
        refusals=Refusals(database, clock, registry.name),
        proxies=section.trusted_proxies,
        refused_key=metrics.count_refused_key,
        last_event=feed.last,
    )
    return Core(
        settings,
        database,
        people,
        feed,
        registry,
        router,
        table,
        checks.add,
        hosts.drain,
        runner.drained,
        stack,
    )


def _warn_of_unreadable(settings: CoreSettings, protected: ProtectedTargets) -> None:
    """Log which files that the settings name can't be read."""
    log = structlog.get_logger("core.app")
    if problem := protected.current().problem:
        log.warning("protect_unreadable", reason=problem)
    for problem in secret_problems(settings):
        log.warning("secret_unreadable", reason=problem)


def _warn_of_confinement(settings: CoreSettings, made: Sequence[Engine]) -> None:
    """Log that programs of responders can do more than they need."""
    for part in confinement_parts(settings, made):
        if not part.ok or settings.core.confinement == "none":
            structlog.get_logger("core.app").warning("confinement_incomplete", reason=part.message)


def _with_full_logins(section: ResponderSection, domain: str) -> ResponderSection:
    """A section whose people are named by their whole logins, by which others know what they are called."""
    named = {key: getattr(section, key) for key in ("run_by", "approve_by")}
    full = {
        key: tuple(name if name.startswith("@") else full_login(name, domain) for name in names)
        for key, names in named.items()
        if names is not None
    }
    return section.model_copy(update=full)


def host_of(settings: CoreSettings, made: Sequence[Engine]) -> Host:
    """The host that this process runs on. Raises ResponderBotError("unavailable")."""
    jobs = settings.core.jobs if any(engine.runs_here for engine in made) else None
    try:
        return Host.of(host_name(settings), jobs)
    except OSError as error:
        sentence = f"{settings.core.jobs} can't be used ({error.strerror}); correct that, or set [core] state."
        raise ResponderBotError("unavailable", sentence) from error


def paths_of(settings: CoreSettings) -> list[Path]:
    """The local paths that messages may contain."""
    paths = [
        *files_of(settings.core.database),
        settings.core.jobs,
        settings.core.environments,
        BUNDLED,
        Path.cwd(),
        Path.home(),
    ]
    for engine in settings.engine:
        paths += [*engine.responders, *(path for path in (engine.ca_file, engine.python) if path)]
    return [*paths, *(path.parent for path in paths if path.parent != path)]


class _Health(Service):
    """What `/health` shows of this process, beside its store."""

    def __init__(
        self,
        settings: CoreSettings,
        made: Sequence[Engine],
        parts: Parts,
        jobs: health.JobFoldersProbe,
        *,
        hosts: Hosts,
        due: Due,
        undos: Undos,
        sources: Sources,
        lists: BlockLists,
    ) -> None:
        super().__init__(parts)
        self._settings, self._made = settings, made
        self._jobs, self._hosts, self._due, self._undos = jobs, hosts, due, undos
        self._sources, self._lists = sources, lists
        self._others: dict[str, Callable[[], Awaitable[str]]] = {}
        self._reading = asyncio.Lock()  # one at a time: reads that wait for a lock must not take all connections

    def add(self, name: str, find_problem: Callable[[], Awaitable[str]]) -> None:
        """Show another component of this process."""
        self._others[name] = find_problem

    async def parts(self) -> list[Check]:
        """The parts that are always shown, then those with problems."""
        parts = [*engine_parts(self._registry), *confinement_parts(self._settings, self._made)]
        parts += _part("job folders", await self._jobs.problem())
        problems = [(name, await find_problem()) for name, find_problem in self._others.items()]
        parts += [Check(name, not problem, problem) for name, problem in problems]
        try:
            async with asyncio.timeout(HEALTH_TIMEOUT_S), self._reading:
                parts += _part("rules of responders", *await self._database.read(self._guards.problems))
                parts += await undo_parts(self._undos)
                parts += _part("hosts", *await self._hosts.problems())
                parts += _part("due", await self._due.problem())
                parts += await clock_parts(self._database, self._clock)
                parts += _part("sources", *await self._sources.problems())
                await self._database.read(partial(stored_actions.find, action_id=0))  # waits while the table is locked
                parts += [Check("block list", False, text) for text in await self._lists.problems()]
        except TimeoutError:
            sentence = f"The store did not answer within {HEALTH_TIMEOUT_S:g} s; see what locks its tables or slows it."
            parts.append(Check("reads of the store", False, sentence))
        except ResponderBotError:
            pass  # the store's own part says so
        return parts


def engine_parts(registry: Registry) -> list[Check]:
    """The health of each engine: a summary, then a line for each definition that can't be used."""
    parts = []
    for state in registry.states():
        if state.engine.name == OWN_ENGINE:
            continue
        skipped = [f"{skipped.name}: {skipped.reason}" for skipped in state.usable.skipped]
        message = "\n".join([_summary(state.usable), *skipped]) if state.up else state.message
        parts.append(Check(f"engine {state.engine.name}", state.up, message))
    return [*parts, *_part("responder settings", *registry.settings_problems())]


async def undo_parts(undos: Undos) -> list[Check]:
    """Timed undos that are overdue; empty without any."""
    waiting = await undos.waiting()
    what, whose = ("1 run was", "its") if waiting == 1 else (f"{waiting} runs were", "their")
    message = f"{what} to be undone by now and could not be; {whose} `undo` says why. Core tries again."
    return _part("timed undo", message if waiting else "")


async def clock_parts(database: Database, clock: Clock) -> list[Check]:
    """Events of a time that has not come, which a wrong clock made; empty without any."""

    def read(reads: Reads) -> str:
        now = clock()
        ahead = events.ahead(reads, now + CLOCKS_DIFFER_MS, EVENTS_LOOKED_AT)
        if not ahead:
            return ""
        changed = sorted({row["object_id"] for row in ahead if row["object_type"] == "Action"})
        runs = dict.fromkeys([*changed[-RUNS_NAMED:], *stored_actions.timed(reads, RUNS_NAMED)])
        newest = max(row["at"] for row in ahead)
        named = ", ".join(f"~{number}" for number in runs)
        return (
            f"The newest event is of {as_time(newest)}, and this machine's clock says {as_time(now)}; set it (NTP)."
            + (f" Timed ends and approvals follow it: look at {named}." if named else "")
        )

    return _part("clock", await database.read(read))


def _part(name: str, *problems: str) -> list[Check]:
    """What has these problems, in sentences; nothing if it has none."""
    message = "\n".join(filter(None, problems))
    return [Check(name, False, message)] if message else []


def confinement_parts(settings: CoreSettings, made: Sequence[Engine]) -> list[Check]:
    """Whether programs of responders are confined; empty if no engine runs programs."""
    if not any(engine.runs_programs for engine in made):
        return []
    core = settings.core
    others = [
        (section.confinement, name)
        for name, section in settings.responder.items()
        if section.confinement not in (None, core.confinement)
    ]
    modes = {core.confinement, *(mode for mode, _ in others)}
    if modes == {"none"}:
        off = "off by [core] confinement: responders run with all rights of core's account"
        return [Check("confinement", True, off)]
    reachable = exposed((*files_of(core.database), core.jobs), Confinement(readable=(), writable=()))
    problems = [problem for mode in sorted(modes) if (problem := unavailable(mode))]
    problems += [f"{path} can be read by every responder; move it out of the system's folders." for path in reachable]
    if problems:
        return [Check("confinement", False, "\n".join(problems))]
    said = [f"{_in_words(mode)}: {', '.join(names)}" for mode, names in grouped(sorted(others)).items()]
    return [Check("confinement", True, "; ".join([_in_words(core.confinement), *said]))]


def _in_words(confinement: str) -> str:
    return "not confined" if confinement == "none" else confinement


def _summary(catalogue: Catalogue) -> str:
    """How many responders are available and how many are not configured, and the names of three that can't be used."""
    unusable = [skipped.name for skipped in catalogue.skipped if skipped.is_wanted]
    idle = len(catalogue.skipped) - len(unusable)
    summary = f"{len(catalogue.responders)} available" + (f", {idle} not configured" if idle else "")
    if not unusable:
        return summary
    return f"{summary}; can't be used: {some_of(unusable, 3)} (`responder-bot responders list` says why)"


async def _prune(
    settings: CoreSettings, retention: Retention, database: Database, clock: Clock, keeping: Sequence[str]
) -> None:
    """Delete what is older than its retention; `keeping` are the engines that keep job folders."""
    await database.transaction(lambda tx: stored_hosts.forget_lost(tx, clock() - LOST_HOST_MS))
    if counts := await retention.prune():
        structlog.get_logger("core.app").info("pruned", counts=dict(counts))
    for name in keeping:
        await _remove_job_folders(settings.core.jobs / name, name, database)


async def _remove_job_folders(jobs: Path, engine: str, database: Database) -> None:
    """Remove the job folders of an engine whose actions are deleted."""
    folders = await asyncio.to_thread(job_folder.by_action, jobs, engine)
    known = await database.snapshot(partial(stored_actions.existing, action_ids=list(folders)))
    await asyncio.to_thread(job_folder.remove_free, [folders[number] for number in folders.keys() - known])
