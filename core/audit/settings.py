"""Records with which settings core starts."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from core.audit import trail
from core.audit.verify import canonical, digest
from core.common.clock import Clock
from core.common.database import Database, Transaction
from core.store import audit as stored
from core.store.database import backup


async def record_settings(database: Database, clock: Clock, host: str, settings: Mapping[str, Any]) -> None:
    """Add a row with the hash of the settings, and which keys differ from this host's last start."""

    def work(tx: Transaction) -> None:
        salt = backup.database_id(tx)
        digests = {name: digest(f"{salt} {name} {json.dumps(value, default=str)}") for name, value in _leaves(settings)}
        before = stored.settings(tx, host)
        names = sorted(before.keys() | digests.keys())
        changed = [name for name in names if before and before.get(name) != digests.get(name)]
        stored.set_settings(tx, host, digests)
        hash_ = digest(canonical(digests))
        trail.record(tx, clock(), "settings.loaded", by=trail.CORE, object=host, settings=hash_, changed=changed)

    await database.transaction(work)


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting with its dotted name."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
