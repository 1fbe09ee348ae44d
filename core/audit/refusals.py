"""Records requests that were refused, each in a transaction of its own, as nothing else of them is stored."""

from collections import OrderedDict
from typing import Any

from core.audit import trail
from core.common.clock import MINUTE_MS, Clock
from core.common.database import Database
from core.common.errors import ResponderBotError
from core.models import parse_id

MAX_LOGINS = 60
"""Refused logins that get a row in a minute, as anybody can cause them."""
_CODES = ("forbidden", "conflict", "rate_limited")


class Refusals:
    """Adds a row to the audit for each refusal; of logins, one a minute for each address."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._addresses: OrderedDict[str, int] = OrderedDict()
        """When each address last got a row, oldest first; at most MAX_LOGINS."""

    async def request(
        self, error: ResponderBotError, *, login: str, request: str, object: str, responder: str | None = None
    ) -> None:
        """Record that somebody was refused what they asked for; `responder` is that of a run, if there is one.

        What is no id in `object` is any text, and so beside the chain.

        Raises ResponderBotError("unavailable").
        """
        rule = error.details.get("rule") or error.details.get("permission")
        if error.code not in _CODES and rule is None:
            return
        details: dict[str, Any] = {"code": error.code, "rule": rule, "responder": responder, "asked": request}
        what: trail.What = "run.refused" if responder else "request.refused"
        is_id = parse_id(object) is not None
        now, texts = self._clock(), {"reason": error.message, "object": "" if is_id else object}
        about = object if is_id else "core"
        await self._database.transaction(
            lambda tx: trail.record(tx, now, what, by=login, object=about, texts=texts, **details)
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
            lambda tx: trail.record(tx, now, "login.refused", by="", object="core", texts={"address": address})
        )
