"""The composition root of the bot: creates its parts, and starts and stops them in order."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import aiohttp
import structlog
from slack_sdk.web.async_client import AsyncWebClient

from bot.app.channels import LOOK_EVERY_S, Channels
from bot.app.dispatcher import AppInstallation, Dispatcher
from bot.app.health import BotHealth
from bot.app.replies import ResponseUrls
from bot.app.transports import HttpServer, HttpTransport, SocketTransport, bolt_app, web_client
from bot.app.workers import Workers
from bot.block_kit.text import COMMAND, NAMES, utc_time
from bot.clearance import RED
from bot.features.alert_groups.views import storm_sentence
from bot.features.base import Services
from bot.features.registry import COMMANDS
from bot.identity import Identity
from bot.names import SlackNames
from bot.notifier.notifier import Notifier
from bot.notifier.timeline import ChannelAccess
from bot.outbox.errors import SLACK_FAILURES, DeliveryError, classify, classify_connection
from bot.outbox.models import is_person
from bot.outbox.outbox import MessageOutbox
from bot.outbox.replicas import LOOK_MS, RENEW_MS, summary
from bot.outbox.sending.rate_limiter import RateLimiter
from bot.outbox.sending.sender import ClearanceGuard
from bot.outbox.store import Stores, open_stores
from bot.settings import BotSettings
from core.client import CoreClient
from core.common import logs
from core.common.clock import Clock, boot_ms
from core.common.database import Database
from core.common.database.schema import Opening
from core.common.errors import ResponderBotError
from core.common.tasks import Backoff, cancel_and_wait, repeat
from core.common.words import count
from core.models import Check

PRUNE_EVERY_S = 3_600.0
CLOSE_GRACE_S = 5.0  # for interactions that were accepted before the bot is stopped
CONNECTING = Backoff(0.5, 10.0)  # between attempts to connect to Slack
REFUSED_PAUSE_S = 60.0  # while a person has to change something

log = structlog.get_logger("bot.app")


class Bot:
    """A running bot, created by `running`."""

    def __init__(
        self,
        settings: BotSettings,
        core: CoreClient,
        stores: Stores,
        session: aiohttp.ClientSession,
        clock_ms: Callable[[], int],
        rate_limiter: RateLimiter | None,
        boot_ms: Clock,
    ) -> None:
        self._installation = installation = AppInstallation()
        self._ready = asyncio.Event()  # Slack has said where the app is installed, and what the channels may show
        self.connected = asyncio.Event()
        """Set once payloads arrive for the first time."""
        self._slack_problem = ""
        self.slack: AsyncWebClient = web_client(settings.slack.bot_token, settings.slack, session)
        self.channels = channels = Channels(settings.channel, self.slack)
        guard = ClearanceGuard(self._max_clearance, channels.refreshed.set)
        self.outbox = MessageOutbox(stores, self.slack, clock_ms, rate_limiter=rate_limiter, guard=guard)
        self.retention = self.outbox.retention(settings.retention.message_days, core.closed)
        identity = Identity(core, self.slack, clock_ms, link_by_email=settings.slack.link_by_email)
        self.names = SlackNames(self.slack, lambda login: identity.slack_user(installation.team_id, login), clock_ms)
        core.on_named = self.names.learn
        NAMES.set(self.names.called)
        COMMAND.set(settings.slack.command)
        access = ChannelAccess(
            channels.routes,
            channels.clearance,
            channels.is_known,
            channels.refreshed,
            identity.person,
            command=settings.slack.command,
            groupings=channels.groupings,
            mentions=channels.mentions,
            workspace_url=lambda: installation.workspace_url,
            team=lambda: installation.team_id,
            slack_user=identity.slack_user,
        )
        self.notifier = Notifier(core, self.outbox, access, clock_ms)
        self.leading = asyncio.Event()
        """Set while this replica holds the lease."""
        services = Services(
            slack=self.slack,
            outbox=self.outbox,
            core=core,
            clock_ms=clock_ms,
            clearance=channels.clearance,
            checks=self.checks,
            commands=COMMANDS,
            login=identity.login,
            slack_user=identity.slack_user,
            command=settings.slack.command,
            alert_days=settings.retention.alert_days,
            workspace_url=lambda: installation.workspace_url,
        )
        self._workers = Workers()
        self._connection = Workers()
        health = BotHealth(
            *(self.health, self.outbox, self.leading.is_set, self._workers, self.retention.counts),
            settings.core.metrics_token,
        )
        self.dispatcher = Dispatcher(
            services,
            self.outbox,
            identity,
            installation,
            ResponseUrls(session, settings.slack.api_url),
            self._on_channel_changed,
            health.time_acknowledgement,
            self._workers,
            boot_ms,
        )
        app = bolt_app(settings.slack, self.dispatcher, installation)
        self.transport: SocketTransport | HttpTransport = (
            SocketTransport(app, settings.slack)
            if settings.slack.app_token
            else HttpTransport(app, settings.slack, health.routes())
        )
        port = settings.bot.health_port
        self.health_server = (
            None if port is None else HttpServer("127.0.0.1", port, health.routes(), "[bot] health_port")
        )
        self._is_closed = False

    async def start(self) -> None:
        """Start all parts; those that need Slack wait for it."""
        try:
            await self.notifier.begin()
        except ResponderBotError:  # core is down: the notifier begins once it is back
            if self.notifier.is_misled.is_set():
                raise
        self.dispatcher.start()
        if self.health_server is not None:
            await self.health_server.start()
        await self.transport.start()
        self._connection.start(self._keep_connected)
        self._workers.start(self._lead, every_s=LOOK_MS / 1000)
        self._workers.start(self._refresh_channels, every_s=LOOK_EVERY_S)

    async def until_ended(self) -> None:
        """Wait for what the bot can't go on with. Raises ResponderBotError once core has another database."""
        await self.notifier.is_misled.wait()
        raise self.notifier.misled()

    async def close(self) -> None:
        """Accept nothing more, finish what was accepted, release the lease and the files. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        await self._connection.close()
        await self.transport.close()
        if self.health_server is not None:
            await self.health_server.close()
        await self.dispatcher.close(CLOSE_GRACE_S)
        try:
            await self.outbox.release()
        except ResponderBotError as error:  # the lease expires soon
            log.warning("lease_not_released", reason=error.message)
        finally:
            await self.outbox.close()

    # the connection to Slack

    async def _keep_connected(self) -> None:
        """Connect to Slack, and again whenever the connection is lost."""
        await self._until_slack_does(self._learn_installation)
        await self.channels.begin(self.outbox.channels_changed_at)
        self._ready.set()
        while True:
            await self._until_slack_does(self.transport.connect, classify_connection)
            self.connected.set()
            log.info("slack_connected")
            await self.transport.until_lost()
            log.warning("slack_lost")

    async def _learn_installation(self) -> None:
        self._installation.learn(await self.slack.auth_test())

    async def _until_slack_does(
        self, step: Callable[[], Awaitable[None]], classified: Callable[[Exception], DeliveryError] = classify
    ) -> None:
        """Take this step as often as it fails. `/health` says why meanwhile, and the log when the reason changes."""
        failures = 0
        while True:
            try:
                await step()
            except SLACK_FAILURES as error:
                failure = classified(error)
            else:
                self._slack_problem = ""
                return
            if failure.message != self._slack_problem:
                write = log.warning if failure.is_temporary else log.error
                write("slack_not_connected", code=failure.code, reason=failure.message)
            self._slack_problem = failure.message
            failures += 1
            pause_s = max(CONNECTING.after(failures), failure.wait_s)
            await asyncio.sleep(pause_s if failure.is_temporary else REFUSED_PAUSE_S)

    # leading: of all replicas, the holder of the lease follows core and sends

    async def _lead(self) -> None:
        await self._ready.wait()  # nothing is shown before Slack has said which channels are shared
        if await self.outbox.replicas.acquire():
            await self._lead_while_held()

    async def _lead_while_held(self) -> None:
        """Run the notifier and the sender while this replica holds the lease. Raises if one of them fails."""
        work = (
            self.notifier.run(),
            self.outbox.sender.run(),
            repeat("pruning", PRUNE_EVERY_S, self._prune),
        )
        tasks = [asyncio.create_task(worker) for worker in work]
        self.leading.set()
        try:
            while await self._keeps_lead():
                done, _ = await asyncio.wait(tasks, timeout=RENEW_MS / 1000, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            self.leading.clear()
            await cancel_and_wait(*tasks)

    async def _prune(self) -> None:
        if pruned := await self.retention.prune():
            log.info("pruned", counts=dict(pruned))

    async def _keeps_lead(self) -> bool:
        """Renew the lease. While the database is away it is kept until it is over, so that calls under way can end."""
        left_s = self.outbox.replicas.left_ms() / 1000
        if not left_s:
            return False
        try:
            async with asyncio.timeout(left_s):
                return await self.outbox.replicas.acquire()
        except TimeoutError:
            return False
        except ResponderBotError as error:
            log.warning("lease_failed", reason=error.message)
            return True

    # callbacks of the parts

    def _max_clearance(self, channel: str) -> int:
        """The highest TLP that may be sent there. Messages to a person are redacted for them when rendered."""
        return RED if is_person(channel) else self.channels.clearance(channel) or 0

    async def _on_channel_changed(self, channel: str) -> None:
        """Look at the channels and send what waits: the bot was invited, or a channel was archived or shared."""
        if self.channels.clearance(channel) is not None:
            await self.channels.refresh()
            await self.outbox.retry_now(channel)

    async def _refresh_channels(self) -> None:
        await self._ready.wait()
        await self.channels.refresh_if_due(self.outbox.channels_changed_at)

    # checks for `doctor` and `/health`

    async def checks(self) -> Sequence[Check]:
        """The state of Slack, the transport, the channels and the delivery; asks Slack."""
        about_slack = [await self._token_check(), self._transport_check(), *await self.channels.checks()]
        return [*about_slack, *await self._own_checks()]

    async def health(self) -> Sequence[Check]:
        """The state that is known without asking Slack; tries the database."""
        healthy = await self.outbox.check()
        store = [Check("store", False, healthy.message, is_vital=healthy.is_down)] if healthy.message else []
        return [self._transport_check(), *store, *await self._own_checks()]

    async def problem(self) -> str:
        """What `health` finds wrong, a line for each check, or ""."""
        return "\n".join(f"{check.name}: {check.message}" for check in await self.health() if not check.ok)

    def _transport_check(self) -> Check:
        check = self.transport.check()
        return replace(check, ok=False, message=self._slack_problem) if self._slack_problem else check

    async def _own_checks(self) -> list[Check]:
        try:
            delivery = await self._delivery_checks()
        except ResponderBotError as error:
            delivery = [Check("delivery", False, error.message)]
        problem = self.notifier.problem
        feed = Check("feed", not problem, problem or "core's changes are followed")
        others = (("workers", self._workers.problem()), ("log", logs.problem()))
        return [*delivery, feed, *(Check(name, False, message) for name, message in others if message)]

    async def _delivery_checks(self) -> list[Check]:
        problems = [
            Check("delivery", False, f"{problem.message} {count(problem.waiting, 'message')} unsent.")
            for problem in await self.outbox.problems()
        ]
        names = self.channels.names
        storms = [
            Check(f"storm in {names.get(s.channel, s.channel)}", True, storm_sentence(s, utc_time(s.since)))
            for s in await self.outbox.storms()
        ]
        replicas = await self.outbox.replicas.all()
        lost = [replica for replica in replicas if replica.silent_ms]
        message = f"{summary(replicas)}{'; start what is lost again, if it is to come back' if lost else ''}"
        on_way = Check("delivery", True, f"{count(await self.outbox.waiting(), 'message')} on the way")
        return [*(problems or [on_way]), Check("replicas", not lost, message), *storms]

    async def _token_check(self) -> Check:
        try:
            response = await self.slack.auth_test()
        except SLACK_FAILURES as error:
            return Check("token", False, classify(error).message)
        return Check("token", True, f"{response.get('user')} in {response.get('team')}")


@asynccontextmanager
async def running(
    settings: BotSettings,
    core: CoreClient,
    *,
    clock_ms: Callable[[], int],
    rate_limiter: RateLimiter | None = None,
    boot_ms: Clock = boot_ms,
    database: Database | None = None,
) -> AsyncIterator[Bot]:
    """Run the bot until the block ends. It connects to Slack as soon as Slack lets it, see `Bot.connected`.

    `database` is core's, if it is open in this process. Raises ResponderBotError with what to do if the database can't
    be opened or is another one than core has, or if the port is taken.
    """
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15)) as session:
        stores = await Opening().run(partial(open_stores, settings.core.database, shared=database))
        bot = Bot(settings, core, stores, session, clock_ms, rate_limiter, boot_ms)
        try:
            await bot.start()
            yield bot
        finally:
            await bot.close()
