"""Publishes heads of the audit: in the log, and at a log server by syslog over TLS (core/docs/audit.md#heads)."""

import asyncio
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from urllib.parse import urlsplit

import structlog

from core.audit import trail
from core.common.clock import Clock
from core.common.database import Database
from core.common.errors import ResponderBotError
from core.common.tasks import repeat

TICK_S = 5.0  # how late a head may be, and between attempts
PORT = 6514
SEND_S = 10.0
CLOSE_S = 2.0
_NOTICE = 13 * 8 + 5  # of the facility "log audit"

log = structlog.get_logger("core.app")


async def publish_forever(database: Database, clock: Clock, logged: int) -> None:
    """Publish the head each hour, and log what was published after row `logged`, by whichever process."""

    async def publish() -> None:
        nonlocal logged
        if await database.read(lambda reads: trail.is_due(reads, clock())):
            await database.transaction(lambda tx: trail.publish_if_due(tx, clock()))
        heads = await database.read(partial(trail.heads_after, number=logged))
        for head in heads.values():
            log.info("audit_head", head=head)
        logged = max(heads, default=logged)

    await repeat("publishing heads of the audit", TICK_S, publish)


async def send_forever(database: Database, clock: Clock, url: str, host: str, *, tick_s: float = TICK_S) -> None:
    """Send the last head, as nobody knows whether it arrived before this start, then each new one."""
    sent: int | None = None

    async def send() -> None:
        nonlocal sent
        if sent is None:
            sent = await database.read(trail.last_published) - 1
        if heads := await database.read(partial(trail.heads_after, number=sent)):
            at = datetime.fromtimestamp(clock() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            start = f"<{_NOTICE}>1 {at} {host} responder-bot - audit_head - head="  # as RFC 5424 says
            try:
                async with asyncio.timeout(SEND_S):
                    await _send(url, [f"{start}{head}" for head in heads.values()])
            except OSError as error:
                raise ResponderBotError("unavailable", f"{url}: {str(error) or type(error).__name__}") from error
            sent = max(heads)

    await repeat("sending heads of the audit", tick_s, send)


async def _send(url: str, messages: list[str]) -> None:
    """Raises OSError."""
    server, context = urlsplit(url), await asyncio.to_thread(ssl.create_default_context)
    _, writer = await asyncio.open_connection(server.hostname, server.port or PORT, ssl=context)
    try:
        writer.write(b"".join(f"{len(message)} {message}".encode() for message in messages))  # framed as RFC 5425 says
        await writer.drain()
        writer.close()
        with suppress(ConnectionError, TimeoutError, ssl.SSLEOFError):  # a server may hang up, or not, without a word
            async with asyncio.timeout(CLOSE_S):
                await writer.wait_closed()
    finally:
        writer.transport.abort()
