"""Records who decided what, in the transaction that does it (core/docs/audit.md).

Each row names the hash of the one before. What says what an incident or a person was stands beside the chain, and a
row has its salted hash, so that it can be erased.
"""

import json
import os
import secrets
import socket
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache
from typing import Any, Literal, NamedTuple

from core.audit.verify import NO_HASH, canonical, digest, text_digest
from core.authorization import COMMAND_LINE
from core.common import logs
from core.common.clock import MINUTE_MS, Clock
from core.common.database import Database, Row, Transaction
from core.common.errors import ResponderBotError
from core.common.private_files import name_of
from core.models import RunInput, parse_id
from core.store import audit as stored
from core.store.database import backup

SALT_BYTES = 16
TEXT_CHARS = 8_192
"""Of a longer text, the row has the digest and the beginning."""
CORE = "core"
"""Who decided, if no person did."""

What = Literal[
    "user.added",
    "user.disabled",
    "user.enabled",
    "user.profile",
    "user.clearance",
    "user.linked",
    "user.unlinked",
    "key.made",
    "key.revoked",
    "group.members",
    "erased",
    "run.requested",
    "run.refused",
    "run.covered",
    "run.approved",
    "run.denied",
    "run.expired",
    "run.dispatched",
    "run.cancelled",
    "run.cancel_withdrawn",
    "run.ended",
    "undo.started",
    "undo.refused",
    "undo.failed",
    "undo.moved",
    "undo.replaced",
    "undo.doubted",
    "extension.requested",
    "extension.approved",
    "extension.denied",
    "extension.cancelled",
    "extension.expired",
    "measure.ended",
    "bulk.retried",
    "alert.status",
    "alert.assignee",
    "alert.case",
    "request.refused",
    "login.refused",
    "host.drained",
    "host.resumed",
    "settings.loaded",
    "pruned",
    "audit.pruned",
    "backup.restored",
    "audit.read",
    "audit.exported",
]
"""Each decision and refusal; the list with its fields is in core/docs/audit.md."""


class Origin(NamedTuple):
    """Where the request comes from that a task works for."""

    login: str
    """Who makes it."""
    through: str
    """The login whose key it came with."""
    key: str
    """The name of that key."""
    slack: str
    """Team, user and channel in Slack, such as `T1:U1:C1`, or ""."""


_origin: ContextVar[Origin | None] = ContextVar("origin", default=None)


def set_origin(origin: Origin) -> None:
    """Have each row that this task writes for that login say where its request came from."""
    _origin.set(origin)


def record(
    tx: Transaction,
    now: int,
    what: What,
    *,
    by: str,
    object: str,
    root: str | None = None,
    texts: Mapping[str, str | None] | None = None,
    **details: Any,
) -> int:
    """Add a row, after the change that it records; returns its number.

    `by` is a login or CORE, `object` what was decided on: `~12`, a login, a group. `root` is the alert or case that it
    belongs to. `details` are plain JSON; those that are None, empty or False are left out. `texts` say what an incident
    or a person was.
    """
    head = stored.last(tx)
    number, previous = (1, NO_HASH) if head is None else (head["number"] + 1, head["hash"])
    said = {**(texts or {}), "slack_origin": _slack_origin(by)}
    salted = {name: (secrets.token_hex(SALT_BYTES), _bounded(text)) for name, text in said.items() if text}
    row = {
        **{name: value for name, value in details.items() if value not in (None, "", [], {}, False)},
        **{"number": number, "previous": previous, "at": now, "what": what, "by": by, "object": object},
        **_through(by),
        **({"request": request_id} if by != CORE and (request_id := logs.request_id()) else {}),
        **({"root": root} if root and root != object else {}),
        **({"texts": {name: text_digest(*salted[name]) for name in salted}} if salted else {}),
    }
    doc = canonical(row)
    hash_ = digest(doc)
    values = {"number": number, "at": now, "what": what, "object": object, "root": root}
    stored.insert(tx, {**values, "hash": hash_, "doc": doc})
    if salted:
        stored.insert_texts(tx, number, salted)
    return number


def record_run(tx: Transaction, now: int, what: What, row: Row | Mapping[str, Any], **more: Any) -> None:
    """Add a row on an action, as `record` does."""
    on, responder = f"~{row['object_id']}", row["responder_name"]
    record(tx, now, what, object=f"~{row['id']}", root=f"~{row['root_id']}", on=on, responder=responder, **more)


def _through(by: str) -> Mapping[str, str]:
    """Through what somebody acted: their own key, the bot's, or an account of the system."""
    if by == COMMAND_LINE.login:
        return {"through": _account()}
    origin = _origin.get()
    if origin is None or origin.login != by:
        return {}
    through = {"through": origin.through} if origin.through != by else {}
    return {"key": origin.key, **through}


def _slack_origin(by: str) -> str:
    """Team, user and channel of the click that somebody acted by; ""."""
    origin = _origin.get()
    return "" if origin is None or origin.login != by else origin.slack


@cache
def _account() -> str:
    """Who runs the command line."""
    return f"{name_of(os.getuid())}@{socket.gethostname()}"


def _bounded(text: str) -> str:
    if len(text) > TEXT_CHARS:
        return f"{text[:TEXT_CHARS]}... (SHA-256 of the whole: {digest(json.dumps(text))})"
    return text


# --- refusals ---------------------------------------------------------------------------------------------------------


MAX_LOGINS = 60
"""Refused logins that get a row in a minute, as anybody can cause them."""
_CODES = ("forbidden", "conflict", "rate_limited")


class Refusals:
    """Adds a row for each refusal, in a transaction of its own; of logins, one a minute for each address."""

    def __init__(self, database: Database, clock: Clock, called: Callable[[str], str]) -> None:
        """`called` gives the name of the responder that a request names by its id."""
        self._database = database
        self._clock = clock
        self._called = called
        self._addresses: OrderedDict[str, int] = OrderedDict()
        """When each address last got a row, oldest first; at most MAX_LOGINS."""

    async def request(
        self, error: ResponderBotError, *, login: str, request: str, object: str, run: RunInput | None = None
    ) -> None:
        """Record that somebody was refused what they asked for, such as a `run`.

        What is no id in `object` is any text, and so beside the chain.

        Raises ResponderBotError("unavailable").
        """
        rule = error.details.get("rule") or error.details.get("permission")
        if error.code not in _CODES and rule is None:
            return
        details: dict[str, Any] = {"code": error.code, "rule": rule, "asked": request}
        if run is not None:
            on = [one for one in run.target if parse_id(one) is not None]  # and none by its data
            details |= {"responder": self._called(run.responder_id), "target": on}
        what: What = "request.refused" if run is None else "run.refused"
        is_id = parse_id(object) is not None
        now, texts = self._clock(), {"reason": error.message, "object": "" if is_id else object}
        about = object if is_id else "core"
        await self._database.transaction(
            lambda tx: record(tx, now, what, by=login, object=about, texts=texts, **details)
        )

    async def login(self, address: str) -> None:
        """Record a request without a valid key. Raises ResponderBotError("unavailable")."""
        now = self._clock()
        while self._addresses and not now - MINUTE_MS < next(iter(self._addresses.values())) <= now:
            self._addresses.popitem(last=False)
        if address in self._addresses or len(self._addresses) >= MAX_LOGINS:
            return
        self._addresses[address] = now
        await self._database.transaction(
            lambda tx: record(tx, now, "login.refused", by="", object="core", texts={"address": address})
        )


# --- the settings of each start ---------------------------------------------------------------------------------------


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
        record(tx, clock(), "settings.loaded", by=CORE, object=host, settings=hash_, changed=changed)

    await database.transaction(work)


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting with its dotted name."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
