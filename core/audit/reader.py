"""Reads the audit: over HTTP within the reader's clearance, in sentences, and as an export (core/docs/audit.md)."""

import csv
import io
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import date, timedelta
from functools import cache
from typing import Any

import structlog

from core.audit import trail
from core.audit.trail import CORE, What
from core.audit.verify import canonical, row_line
from core.authorization import COMMAND_LINE, Caller
from core.common.clock import Clock, as_time, day_ms
from core.common.database import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError
from core.common.tasks import repeat
from core.common.words import count, listed
from core.models import RED, AuditRow, parse_id
from core.store import audit as stored
from core.store.audit import Text

MAX_ROWS = 1_000
LOOK_BACK = 100
"""How many rows are looked at for one that the caller may see."""
_OF_GONE = RED

LevelOf = Callable[[Reads, int], int | None]
"""The clearance that it takes to see an object or a run; None for what is gone."""


class AuditReader:
    """Reads rows, and adds one for each reading."""

    def __init__(self, database: Database, clock: Clock, level_of: LevelOf) -> None:
        self._database = database
        self._clock = clock
        self._level_of = level_of

    async def rows(self, caller: Caller, object_: str, after: int, limit: int) -> list[AuditRow]:
        """The next rows after number `after`, oldest first; with `object_` those about it and what belongs to it."""

        def work(tx: Transaction) -> None:
            trail.record(tx, self._clock(), "audit.read", by=caller.login, object=object_ or "audit")

        await self._database.transaction(work)
        return await self._database.snapshot(
            lambda reads: self._rows(reads, caller, object_, after, min(limit, MAX_ROWS))
        )

    async def story(self, caller: Caller, object_id: str) -> list[AuditRow]:
        """The rows about an alert, a case, a run or a bulk that the caller may see. Raises "not_found", "forbidden"."""
        number = parse_id(object_id)
        if number is None:
            raise ResponderBotError("not_found", f"{object_id[:64]} is no id; give one such as ~12.")

        def read(reads: Reads) -> None:
            level = self._level_of(reads, number)
            if level is None and not stored.of_object(reads, f"~{number}", 0, 1):
                raise ResponderBotError("not_found", f"Nothing has the id ~{number}.")
            caller.require_clearance(_OF_GONE if level is None else level, "read the audit of it")

        await self._database.read(read)
        return await self.rows(caller, f"~{number}", 0, MAX_ROWS)

    async def heads(self, caller: Caller, after: int) -> list[AuditRow]:
        """The last row of those that the caller may see, if its number is greater than `after`."""

        def read(reads: Reads) -> list[AuditRow]:
            last = stored.last(reads)
            first = 0 if last is None else max(after, last["number"] - LOOK_BACK)
            return self._rows(reads, caller, "", first, LOOK_BACK)[-1:]

        return await self._database.snapshot(read)

    def _rows(self, reads: Reads, caller: Caller, object_: str, after: int, limit: int) -> list[AuditRow]:
        rows = stored.of_object(reads, object_, after, limit) if object_ else stored.page(reads, after, None, limit)
        texts = stored.texts(reads, [row["number"] for row in rows])
        levels = cache(lambda number: self._level_of(reads, number))
        found = []
        for row in rows:
            doc = json.loads(row["doc"])
            about = parse_id(doc["object"])
            if about is not None and caller.why_not_cleared(_OF_GONE if (of := levels(about)) is None else of):
                continue
            said = {text.name: text.text for text in texts[row["number"]]}
            of_row = {"number": row["number"], "hash": row["hash"], "row": doc}
            found.append(AuditRow(**{**doc, **of_row, "sentence": sentence(doc, said), "texts": said}))
        return found


# --- rows as sentences for people -------------------------------------------------------------------------------------


_Fields = Mapping[str, Any]
_WHY, _SHOWN = ("note", "reason", "message"), ("target", "object", "name", "address", "slack")
"""The texts that a sentence has, those in quotes first."""
_OVERRIDDEN = {"protect": "protection", "rate": "its rate", "rate_per_target": "its rate for the target"}


def sentence(row: _Fields, texts: Mapping[str, str]) -> str:
    """What a row says. `texts` are those that are not erased."""
    said = SENTENCES[row["what"]](row)
    who = {CORE: "Core", COMMAND_LINE.login: "The command line"}.get(row["by"], row["by"])
    through = f" (through {row['through']})" if "through" in row else ""
    more = [f': "{texts[name]}"' for name in _WHY if name in texts]
    more += [f"; {name}: {texts[name]}" for name in _SHOWN if name in texts]
    more += [f"; {name}: erased" for name in sorted(row.get("texts", {}).keys() - texts.keys())]
    return f"{who}{through} {said}{''.join(more)}".strip()


def _run(verb: str) -> Callable[[_Fields], str]:
    return lambda row: f"{verb} {row['object']}, {row['responder']} on {row['on']}"


def _requested(row: _Fields) -> str:
    undoing = f" to undo {row['undoes']}" if "undoes" in row else ""
    overridden = [_OVERRIDDEN.get(rule, rule) for rule in row.get("overrides", ())]
    overriding = f", overriding {listed(overridden)}" if overridden else ""
    needed = f"; it needs {count(row['approvals_needed'], 'approval')}" if "approvals_needed" in row else ""
    return f"asked to run {row['responder']} on {row['on']}{undoing} as {row['object']}{overriding}{needed}"


def _refused(row: _Fields) -> str:
    where = "" if row["object"] == "core" else f" on {row['object']}"
    return f"was refused {'a run of ' + row['responder'] if 'responder' in row else 'a request'}{where}"


def _until(row: _Fields) -> str:
    before, after = (as_time(row[name]) if name in row else "no end" for name in ("before", "after"))
    return f"the end of {row['object']}, {row['responder']} on {row['on']}, from {before} to {after}"


def _measure_ended(row: _Fields) -> str:
    if "action" in row:
        return f"noted that {row['action']} has undone {row['object']}, {row['responder']} on {row['on']}"
    return f"marked {row['object']}, {row['responder']} on {row['on']}, as ended"


def _changed(what: str) -> Callable[[_Fields], str]:
    return lambda row: f"changed the {what} of {row['object']} from {row['before']} to {row['after']}"


def _members(row: _Fields) -> str:
    parts = [f"{verb} {listed(row[key])}" for key, verb in (("added", "adding"), ("removed", "removing")) if key in row]
    return f"changed the group {row['object']}, {' and '.join(parts)}"


def _assigned(row: _Fields) -> str:
    who = "themselves" if row.get("after") == row["by"] else row.get("after")
    return f"assigned {row['object']} to {who}" if who else f"unassigned {row['before']} from {row['object']}"


def _settings(row: _Fields) -> str:
    changed = f"; since the last start {listed(row['changed'])} changed" if "changed" in row else ""
    return f"started on {row['object']}{changed}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def _erased(row: _Fields) -> str:
    counts = _counted(row.get("counts", {})) or "texts of the audit"
    to = f"; {row['to']} undoes {listed(row['handed_over'])} from now on" if "to" in row else ""
    return f"erased {row['object']}: {counts}{to}"


SENTENCES: Mapping[What, Callable[[_Fields], str]] = {
    "run.requested": _requested,
    "run.refused": _refused,
    "run.covered": lambda row: f"asked to run {row['responder']} on {row['object']} too",
    "run.approved": lambda row: f"{_run('approved')(row)} ({row['approvals']} of {row['approvals_needed']})",
    "run.denied": _run("denied"),
    "run.expired": _run("ended, as nobody approved it in time,"),
    "run.dispatched": _run("started"),
    "run.cancelled": lambda row: _run("withdrew" if "message" in row.get("texts", {}) else "stopped")(row),
    "run.cancel_withdrawn": _run("withdrew the cancel, which its engine can't carry out, of"),
    "run.ended": lambda row: f"{_run('recorded')(row)}, as {row['outcome']}",
    "undo.started": lambda row: f"started {row['action']}, which undoes {row['object']}",
    "undo.refused": _run("could not undo"),
    "undo.failed": _run("noted that the undo failed of"),
    "undo.moved": lambda row: f"moved {_until(row)}",
    "undo.replaced": lambda row: f"left it to {row['action']} when {row['object']} is undone",
    "undo.doubted": _run("noted that nobody knows whether it is in force:"),
    "extension.requested": lambda row: f"asked to move {_until(row)}",
    "extension.approved": _run("approved more time for"),
    "extension.denied": _run("denied more time for"),
    "extension.cancelled": _run("withdrew the request of more time for"),
    "extension.expired": _run("noted that nobody approved in time more time for"),
    "measure.ended": _measure_ended,
    "bulk.retried": lambda row: f"asked again for what {row['root']} had not done: {row['object']}",
    "alert.status": lambda row: f"{'reopened' if row['after'] == 'New' else 'closed'} {row['object']}",
    "alert.assignee": _assigned,
    "alert.case": lambda row: f"put {row['object']} into the case {row['after']}",
    "request.refused": _refused,
    "login.refused": lambda _: "Somebody without a valid key was refused",
    "user.added": lambda row: f"added the user {row['object']} as {row['profile']} with clearance {row['clearance']}",
    "user.disabled": lambda row: f"disabled the user {row['object']}",
    "user.enabled": lambda row: f"enabled the user {row['object']}",
    "user.profile": _changed("profile"),
    "user.clearance": _changed("clearance"),
    "user.linked": lambda row: f"linked {row['object']} to somebody in Slack",
    "user.unlinked": lambda row: f"removed the link of {row['object']} in Slack",
    "key.made": lambda row: f"made a new key {row.get('name', 'default')} for {row['object']}",
    "key.revoked": lambda row: f"revoked the key {row['name']} of {row['object']}",
    "group.members": _members,
    "host.drained": lambda row: f"had the host {row['object']} take no more runs",
    "host.resumed": lambda row: f"had the host {row['object']} take runs again",
    "settings.loaded": _settings,
    "erased": _erased,
    "pruned": lambda row: f"deleted what [retention] lets go: {_counted(row['counts'])}",
    "audit.pruned": lambda row: f"deleted the rows of the audit up to {row['until']}",
    "backup.restored": lambda row: f"started from a backup of {as_time(row['made_at'])}",
    "audit.read": lambda row: f"read the audit of {row['object']}",
    "audit.exported": lambda row: f"exported the audit, rows {row['first']} to the last",
}


# --- export: JSON lines, which `verify` checks, or CSV for people (core/docs/audit.md#export) -------------------------


PAGE = 1_000
_COLUMNS = ("number", "time", "what", "by", "through", "object", "root", "sentence", "hash")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would calculate


async def export(
    database: Database, clock: Clock, by: str, *, since: date | None, until: date | None, as_csv: bool
) -> AsyncIterator[str]:
    """The lines of an export, after a row that says who made it: of these days (UTC, both included), or of all.

    It goes on to the row by which a text of these days was erased later, without which the text seems to be removed.
    Raises ResponderBotError("conflict") if rows are pruned meanwhile.
    """
    first = await database.read(
        lambda reads: stored.first_since(reads, day_ms(since)) if since else stored.first(reads)
    )
    now = clock()
    await database.transaction(lambda tx: trail.record(tx, now, "audit.exported", by=by, object="audit", first=first))
    end = day_ms(until + timedelta(days=1)) if until else None
    last = await database.read(lambda reads: _last(reads, first, stored.last_before(reads, end)))
    before = await database.read(lambda reads: stored.hash_before(reads, first))
    yield _csv(_COLUMNS) if as_csv else canonical({"anchor": {"number": first - 1, "hash": before}}) + "\n"
    number, hash_ = first - 1, before
    while number < last:
        rows, texts = await database.snapshot(lambda reads, after=number: _page(reads, after, last))  # type: ignore[misc]
        if not rows or rows[0]["number"] != number + 1:
            message = f"The rows after {number} were pruned meanwhile, so this export is of no use; export again."
            raise ResponderBotError("conflict", message)
        for row in rows:
            number, hash_ = row["number"], row["hash"]
            for line in (_csv_lines if as_csv else _json_lines)(row, texts[number]):
                yield line
    if not as_csv:
        yield canonical({"head": {"number": number, "hash": hash_}}) + "\n"


def _last(reads: Reads, first: int, last: int) -> int:
    """The last row of an export that is to end with row `last`."""
    for row in stored.erasures_after(reads, last):
        if any(first <= number <= last for number in json.loads(row["doc"]).get("erased", ())):
            last = row["number"]
    return last


def _page(reads: Reads, after: int, last: int) -> tuple[list[Row], dict[int, list[Text]]]:
    rows = stored.page(reads, after, last, PAGE)
    return rows, stored.texts(reads, [row["number"] for row in rows])


def _json_lines(row: Row, texts: Iterable[Text]) -> list[str]:
    payloads = ({"number": row["number"], **text._asdict()} for text in texts)
    lines = [row_line(row["hash"], row["doc"]), *(canonical({"payload": payload}) for payload in payloads)]
    return [f"{line}\n" for line in lines]


def _csv_lines(row: Row, texts: Iterable[Text]) -> list[str]:
    doc = json.loads(row["doc"])
    said = {text.name: text.text for text in texts}
    known = {**doc, "time": as_time(doc["at"]), "sentence": sentence(doc, said), "hash": row["hash"]}
    return [_csv([known.get(name, "") for name in _COLUMNS])]


def _csv(values: Any) -> str:
    line = io.StringIO()
    csv.writer(line).writerow(f"'{value}" if str(value).startswith(_FORMULA) else value for value in values)
    return line.getvalue().encode(errors="backslashreplace").decode()  # a text may have half a surrogate pair


# --- the head: logged at each start and each hour (core/docs/audit.md#heads) ------------------------------------------


HEAD_EVERY_S = 3_600.0

log = structlog.get_logger("core.app")


def head(reads: Reads) -> str:
    """`<number>:<hash>` of the last row; "" without any."""
    last = stored.last(reads)
    return "" if last is None else f"{last['number']}:{last['hash']}"


async def log_head_forever(database: Database, *, every_s: float = HEAD_EVERY_S) -> None:
    """Log the head now and each hour."""

    async def say() -> None:
        log.info("audit_head", head=await database.read(head))

    await repeat("logging the head of the audit", every_s, say)
