"""Logs the head of the audit, at each start and each hour (core/docs/audit.md#heads)."""

import structlog

from core.common.database import Database, Reads
from core.common.tasks import repeat
from core.store import audit as stored

EVERY_S = 3_600.0

log = structlog.get_logger("core.app")


def head(reads: Reads) -> str:
    """`<number>:<hash>` of the last row; "" without any."""
    last = stored.last(reads)
    return "" if last is None else f"{last['number']}:{last['hash']}"


async def log_forever(database: Database, *, every_s: float = EVERY_S) -> None:
    """Log the head now and each hour."""

    async def say() -> None:
        log.info("audit_head", head=await database.read(head))

    await repeat("logging the head of the audit", every_s, say)
