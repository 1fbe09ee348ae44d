"""Holds on alerts and cases, which stop all deletion of them and of what belongs to them."""

from collections.abc import Mapping
from typing import Any, Literal

from core.audit import trail
from core.authorization import Caller
from core.common.database import Reads, Transaction
from core.common.errors import ResponderBotError
from core.models import OBJECT_TYPES, Alert, Case, HeldObject, Hold, Kind
from core.records import alerts, cases, clearance
from core.records.writes import Records
from core.store import objects


class Holds(Records):
    """Holds as org-admins set and lift them."""

    async def set(self, caller: Caller, kind: Literal["alert", "case"], id_or_ref: str, reason: str) -> Alert | Case:
        """Put an alert or a case on hold. Raises ResponderBotError: not_found, forbidden, conflict if it is already."""
        hold = Hold(reason=reason, created_by=caller.login, created_at=self._clock())
        return await self._save(caller, kind, id_or_ref, hold)

    async def lift(self, caller: Caller, kind: Literal["alert", "case"], id_or_ref: str) -> Alert | Case:
        """Raises ResponderBotError: not_found, forbidden, conflict if it is not on hold."""
        return await self._save(caller, kind, id_or_ref, None)

    async def all(self, caller: Caller) -> list[HeldObject]:
        """The objects on hold that the caller may see, oldest first."""

        def read(reads: Reads) -> list[HeldObject]:
            docs = [objects.parsed(row["doc"]) for row in objects.on_hold(reads)]
            return [_held(doc) for doc in docs if not caller.why_not_cleared(doc["tlp"])]

        return await self._database.snapshot(read)

    async def _save(
        self, caller: Caller, kind: Literal["alert", "case"], id_or_ref: str, hold: Hold | None
    ) -> Alert | Case:
        what = f"{'set' if hold else 'lift'} a hold"
        # The profile and not a permission, so that an administrator may from Slack too.
        if caller.profile != "org-admin":
            raise ResponderBotError("forbidden", f"You are not authorized to {what}, only an administrator is.")

        def work(tx: Transaction) -> Alert | Case:
            root: Alert | Case
            if kind == "alert":
                root = alerts.load(tx, alerts.resolve_alert(tx, id_or_ref))
            else:
                root = cases.load_case(tx, cases.resolve_case(tx, id_or_ref))
            clearance.require(tx, caller, root.number, what)
            if (root.hold is None) == (hold is None):
                state = "not on hold" if root.hold is None else f"on hold already, by {root.hold.created_by}"
                raise ResponderBotError("conflict", f"{root.id} is {state}; nothing was changed.")
            changed, now = root.model_copy(update={"hold": hold}), self._clock()
            saved: Alert | Case
            if isinstance(changed, Alert):
                saved = alerts.save(tx, changed, caller.login, now)
            else:
                saved = cases.save_case(tx, changed, caller.login, now)
            verb: trail.What = "hold.set" if hold else "hold.lifted"
            texts = {"reason": hold.reason if hold else None}
            trail.record(tx, now, verb, by=caller.login, object=root.id, root=root.id, texts=texts)
            return saved

        return await self._database.transaction(work)


def _held(doc: Mapping[str, Any]) -> HeldObject:
    kind: Kind = doc["_type"]
    return HeldObject(object_type=OBJECT_TYPES[kind], object_id=doc["id"], title=doc["title"], hold=doc["hold"])
