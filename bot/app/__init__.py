"""The composition root of the bot: its parts meet here, and start and stop in order."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import structlog
from slack_sdk.errors import SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot.app.channels import Channels
from bot.app.dispatcher import Dispatcher, TeamCheck
from bot.app.health import BotHealth
from bot.app.transports import HttpTransport, Listening, SocketTransport, Transport, bolt, web_client
from bot.app.workers import Workers, cancelled
from bot.features.base import Check, Services
from bot.identity import Identity
from bot.notifier import ChannelPolicy, Notifier
from bot.outbox import ClearanceGuard, MessageOutbox, RateLimiter
from bot.outbox.errors import classify
from bot.outbox.models import is_person
from bot.redaction import RED
from bot.settings import BotSettings
from core.client import CoreClient
from core.common import logs
from core.common.errors import ResponderBotError

RENEW_S = 3.0  # a third of the lease
STANDBY_S = 1.0  # how soon another replica takes over a lease that was let go
PRUNE_EVERY = 1_000  # renewals, somewhat below an hour
GRACE_S = 5.0  # for work that was taken when the bot is asked to end
START_TRIES_S = (0.0, 0.5, 1.0, 2.0, 4.0)
DOWNLOAD_BYTES = 1_048_576
SLACK_HOSTS = ("files.slack.com", "slack-files.com")

log = structlog.get_logger("bot.app")


class Bot:
    """A running bot, made by `running`."""

    def __init__(
        self,
        settings: BotSettings,
        core: CoreClient,
        session: aiohttp.ClientSession,
        team: TeamCheck,
        clock_ms: Callable[[], int],
        rate_limiter: RateLimiter | None,
    ) -> None:
        self._settings = settings
        self._session = session
        self._clock = clock_ms
        self.slack: AsyncWebClient = web_client(settings.slack.bot_token, settings.slack, session)
        self.channels = Channels(settings.channel, self.slack)
        guard = ClearanceGuard(self._ceiling, self.channels.looked.set)
        self.outbox = MessageOutbox(settings.bot.database, self.slack, clock_ms, rate_limiter=rate_limiter, guard=guard)
        identity = Identity(core, self.slack, clock_ms, link_by_email=settings.slack.link_by_email)
        channels = self.channels
        places = ChannelPolicy(channels.routes, channels.clearance, channels.is_sure, channels.looked, identity.person)
        self.notifier = Notifier(core, self.outbox, places, clock_ms)
        self.leading = asyncio.Event()
        tools = Services(
            slack=self.slack,
            mail=self.outbox,
            core=core,
            clock_ms=clock_ms,
            clearance=self.channels.clearance,
            repaint=self.notifier.repaint,
            download=self._download,
            checks=self.checks,
            command=settings.slack.command,
        )
        self._workers = Workers()
        vitals = BotHealth(self.health, self.outbox, self.leading.is_set, self._workers)
        self.front = Dispatcher(
            tools,
            self.outbox,
            identity,
            team,
            session,
            self._channel_changed,
            vitals.acknowledging,
            self._workers,
        )
        app = bolt(settings.slack, self.front, team)
        self.transport: Transport = (
            SocketTransport(app, settings.slack)
            if settings.slack.app_token
            else HttpTransport(app, settings.slack, vitals.routes())
        )
        port = settings.bot.health_port
        self.vitals = None if port is None else Listening("127.0.0.1", port, vitals.routes(), "[bot] health_port")
        self._is_closed = False

    async def start(self) -> None:
        """Come up: what each channel may show is known before anything is shown."""
        await self.channels.look()
        with suppress(ResponderBotError):  # core is down: the notifier begins when it is back
            await self.notifier.begin()
        self.front.start()
        if self.vitals is not None:
            await self.vitals.start()
        await self.transport.start()
        self._workers.start(self._lead)
        self._workers.start(self._keep_looking)

    async def close(self) -> None:
        """Take nothing new, finish what was taken, let go of the lease and the files. May be called twice."""
        if self._is_closed:
            return
        self._is_closed = True
        await self.transport.close()
        if self.vitals is not None:
            await self.vitals.close()
        await self.front.close(GRACE_S)
        try:
            await self.outbox.leader.release()
        except ResponderBotError as error:  # it ends by itself, a moment later
            log.warning("lease_not_released", reason=error.message)
        finally:
            await self.outbox.close()

    # the one of several that follows and sends

    async def _lead(self) -> None:
        while True:
            try:
                if await self.outbox.leader.acquire():
                    await self._lead_while_held()
            except ResponderBotError as error:
                log.warning("lease_trouble", reason=error.message)
            except Exception:
                log.exception("lead_failed")
            self.leading.clear()
            await asyncio.sleep(STANDBY_S)

    async def _lead_while_held(self) -> None:
        """Follow, obey and send for as long as the lease is ours; a fault in one of them begins all anew."""
        tasks = (self.notifier.run(), self.notifier.obey(), self.outbox.sender.run())
        work = [asyncio.create_task(task) for task in tasks]
        self.leading.set()
        try:
            renewals = 0
            while await self.outbox.leader.acquire():
                done, _ = await asyncio.wait(work, timeout=RENEW_S, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                renewals += 1
                if renewals % PRUNE_EVERY == 0:
                    await self.outbox.prune()
        finally:
            await cancelled(*work)

    def _ceiling(self, channel: str) -> int:
        """The highest clearance for which something may leave to there; a person's is looked up where it is made."""
        return RED if is_person(channel) else self.channels.clearance(channel) or 0

    async def _channel_changed(self, channel: str) -> None:
        """The bot was invited, or the channel was archived or shared: what waits for it is tried at once."""
        if self.channels.clearance(channel) is not None:
            await self.channels.look()
            await self.outbox.retry_now(channel)

    # what features and doctor ask

    async def checks(self) -> Sequence[Check]:
        """Slack, the way in, the channels, and what can't be delivered, looked at now."""
        return [await self._token(), self.transport.check(), *await self.channels.checks(), *self._standing()]

    async def health(self) -> Sequence[Check]:
        """What is known without asking Slack again; the store is tried."""
        found = await self.outbox.probe.look()
        store = [Check("store", False, found.message, is_vital=found.is_down)] if found.message else []
        return [self.transport.check(), *store, *self._standing()]

    async def _keep_looking(self) -> None:
        await self.channels.keep_looking(self.outbox.channels_changed_at)

    def _standing(self) -> list[Check]:
        try:
            delivery = self._delivering()
        except ResponderBotError as error:
            delivery = [Check("delivery", False, error.message)]
        trouble_of_feed = self.notifier.trouble
        feed = Check("feed", not trouble_of_feed, trouble_of_feed or "core's changes are followed")
        troubles = (("workers", self._workers.trouble()), ("log", logs.trouble()))
        return [*delivery, feed, *(Check(name, False, message) for name, message in troubles if message)]

    def _delivering(self) -> list[Check]:
        found = [
            Check("delivery", False, f"{problem.message} {problem.waiting} message(s) wait.")
            for problem in self.outbox.problems()
        ]
        return found or [Check("delivery", True, f"{self.outbox.waiting()} message(s) on their way")]

    async def _token(self) -> Check:
        try:
            answer = await self.slack.auth_test()
        except (SlackClientError, aiohttp.ClientError, TimeoutError, OSError) as error:
            return Check("token", False, classify(error, "").message)
        return Check("token", True, f"{answer.get('user')} in {answer.get('team')}")

    async def _download(self, url: str) -> bytes:
        """An uploaded file, by its url_private; the token goes to Slack's own hosts only."""
        host = urlsplit(url).hostname
        own = urlsplit(self._settings.slack.api_url).hostname
        if host != own and host not in SLACK_HOSTS:
            raise ResponderBotError("bad_request", "That file is not kept by Slack; paste its text instead.")
        headers = {"Authorization": f"Bearer {self._settings.slack.bot_token}"}
        try:
            async with self._session.get(url, headers=headers, allow_redirects=False) as answer:
                if answer.status != 200:
                    raise ResponderBotError("unavailable", f"Slack did not give the file ({answer.status}).")
                return await _bounded(answer)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ResponderBotError("unavailable", "Slack did not give the file; try again.") from error


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    content = bytearray()
    async for chunk in answer.content.iter_chunked(65_536):
        content += chunk
        if len(content) > DOWNLOAD_BYTES:
            raise ResponderBotError("too_large", "That file is larger than 1 MiB.")
    return bytes(content)


@asynccontextmanager
async def running(
    settings: BotSettings, core: CoreClient, *, clock_ms: Callable[[], int], rate_limiter: RateLimiter | None = None
) -> AsyncIterator[Bot]:
    """The bot, connected to Slack and following core, until the block ends.

    Raises ResponderBotError with what to do when Slack refuses the token, or the bot's database can't be had.
    """
    _prepare(settings.bot.database)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15)) as session:
        team = await _who_am_i(settings, session)
        bot = Bot(settings, core, session, team, clock_ms, rate_limiter)
        try:
            await _started(bot)
            yield bot
        finally:
            await bot.close()


def _prepare(database: Path) -> None:
    """Make the bot's file where it is missing, private to this user."""
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        database.touch(mode=0o600)
    except OSError as error:
        sentence = (
            f"The bot's database {database} can't be opened ({error.strerror}); name another with [bot] database."
        )
        raise ResponderBotError("unavailable", sentence) from error


async def _started(bot: Bot) -> None:
    try:
        await bot.start()
    except (SlackClientError, aiohttp.ClientError) as error:
        met = classify(error, "")
        sentence = f"Slack refuses the app token ({met.code}); check [slack] app_token (xapp-...)."
        raise ResponderBotError("bad_request", sentence if met.kind == "app_refused" else met.message) from error


async def _who_am_i(settings: BotSettings, session: aiohttp.ClientSession) -> TeamCheck:
    """What auth.test says, asked a few times while Slack can't be reached."""
    slack = web_client(settings.slack.bot_token, settings.slack, session)
    met = None
    for wait_s in START_TRIES_S:
        await asyncio.sleep(wait_s)
        try:
            answer = await slack.auth_test()
        except (SlackClientError, aiohttp.ClientError, TimeoutError, OSError) as error:
            met = classify(error, "")
            if met.kind not in ("not_sent", "unknown", "rate_limited"):
                break
            continue
        return TeamCheck(
            team_id=str(answer["team_id"]),
            enterprise_id=str(answer.get("enterprise_id") or ""),
            bot_user_id=str(answer["user_id"]),
            bot_id=str(answer.get("bot_id") or ""),
        )
    raise ResponderBotError("unavailable", met.message if met else "Slack gave no answer.")
