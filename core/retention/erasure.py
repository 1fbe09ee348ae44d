"""Erases alerts, cases and people (core/docs/storage.md#erasure).

The row of the audit comes first, with all that is to go: whoever is interrupted repeats the command.
"""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from core.audit import trail
from core.audit.verify import ForgedError, verify
from core.authorization import COMMAND_LINE, current_permissions
from core.common.clock import FOR_EVER, Clock
from core.common.database import Database, Reads, Row, Transaction
from core.common.database.transfer import Table, matching
from core.common.errors import ResponderBotError
from core.common.words import some_of
from core.models import number_of, parse_id
from core.people import People
from core.retention.pruning import ROOTS, Retention
from core.store import attachments, audit, objects
from core.store import people as stored_people
from core.store import retention as stored
from core.store.database.opening import STORE

Matches = Callable[[str], bool]
Rows = Callable[[Matches], AsyncIterator[tuple[Table, Row]]]

_ID = re.compile(r"~\d{1,18}")
_USER = re.compile(r"\b[UW][A-Z0-9]+\b")
_SECRET = ("hash", "parameters", "whole_parameters")


@dataclass
class Erasure:
    object: str
    """What the audit names: an id, a login, or `alerts` for several ids."""
    roots: list[tuple[stored.Root, int]] = field(default_factory=list)
    """Alerts in no case, and cases."""
    objects: set[int] = field(default_factory=set)
    """These, and the alerts of the cases."""
    ids: set[int] = field(default_factory=set)
    """All of these and what belongs to them."""
    rows: set[int] = field(default_factory=set)
    """The rows of the audit whose texts go."""
    texts: set[tuple[int, str]] = field(default_factory=set)
    """Other texts that go, which name a person in Slack: the number of their row, and their name."""
    read_to: int = 0
    """The last row of the audit that was looked through for them."""
    slack: Sequence[str] = ()
    """A person's `team:user` in Slack."""
    messages: set[int] = field(default_factory=set)
    """The numbers of all messages of the bot that earlier erasures had found; some of them may be left."""
    is_person: bool = False
    handed_over: Sequence[int] = ()
    """A person's runs that core will undo."""
    heir: str = ""
    """Who undoes them from then on."""
    counts: Counter[str] = field(default_factory=Counter)
    """How much of each kind."""

    def names(self, text: str) -> bool:
        """Whether a text names one of the ids, or somebody in Slack."""
        users = {slack.rpartition(":")[2] for slack in self.slack}
        return any(number_of(id_) in self.ids for id_ in _ID.findall(text)) or not users.isdisjoint(_USER.findall(text))


class Eraser:
    """Finds and deletes; `domain` is that of logins."""

    def __init__(self, database: Database, clock: Clock, retention: Retention, domain: str) -> None:
        self.database = database
        self._clock = clock
        self._retention = retention
        self._people = People(database, domain, clock)

    # --- what goes --------------------------------------------------------------------------------------------------

    async def of_roots(self, kind: stored.Root, ids: Sequence[str]) -> Erasure:
        """Alerts in no case, or cases with their alerts. Raises ResponderBotError: not_found, bad_request, conflict."""

        def read(reads: Reads) -> Erasure:
            erasure = Erasure(ids[0] if len(ids) == 1 else f"{kind}s", messages=_messages(reads))
            for id_ in ids:
                number = parse_id(id_)
                row = None if number is None else objects.find_any(reads, number)
                if number is None or row is None or row["kind"] not in ROOTS:
                    if begun := _begun(reads, number):
                        erasure.ids |= begun
                        continue
                    raise ResponderBotError("not_found", f"{id_[:64]} is no {kind}; give an id such as ~12.")
                if row["kind"] != kind:
                    raise ResponderBotError("bad_request", f"{id_} is a {row['kind']}; erase it as a {row['kind']}.")
                case = stored.deciding_root(reads, number)
                if case != number:
                    sentence = f"{id_} is in the case ~{case}, which has what it had; erase that."
                    raise ResponderBotError("conflict", sentence)
                _add_root(reads, erasure, number)
            _require_due(reads, erasure)
            return erasure

        return await self.database.snapshot(read)

    async def of_person(self, name: str, heir: str) -> Erasure:
        """A user with keys, links and groups; what they decided stays. `heir` undoes what their runs have left.

        Raises ResponderBotError: not_found, conflict (runs are open), bad_request (an heir is needed, or may not).
        """
        login = self._people.full_login(name)

        def read(reads: Reads) -> Erasure:
            if stored_people.by_login(reads, login) is not None:
                return self._person(reads, login, heir)
            rows = [row for row in _erased(reads) if row["object"] == login]
            if rows:
                slack = [id_ for text in _slack_of(reads, login).values() for id_ in text.split()]
                return Erasure(login, slack=slack, messages=_messages(reads))
            raise ResponderBotError("not_found", f"There is no user {login}; `responder-bot user list` has all.")

        erasure = await self.database.snapshot(read)
        await self._find_texts(erasure)
        return erasure

    async def _find_texts(self, person: Erasure) -> None:
        """Look for the texts of the audit that name somebody by an id in Slack."""
        last = await self.database.read(audit.last)
        person.read_to = 0 if last is None else last["number"]
        if person.slack:
            found = matching(STORE, self.database, person.names, ("audit_text",))
            person.texts |= {(row["number"], row["name"]) async for _, row in found}

    def _person(self, reads: Reads, login: str, heir: str) -> Erasure:
        if runs := stored.open_of(reads, login):
            sentence = f"{login} has runs under way ({_ids(runs)}); cancel them, or wait until they have ended."
            raise ResponderBotError("conflict", sentence)
        timed, to = stored.timed_of(reads, login), self._people.full_login(heir) if heir else ""
        if timed and (not to or to == login):
            sentence = (
                f"Core is to undo {_ids(timed)} for {login}; say who undoes it from now on, with --undo-for LOGIN."
            )
            raise ResponderBotError("bad_request", sentence)
        if timed and "manageAction" not in current_permissions(reads, to):
            raise ResponderBotError("bad_request", f"{to} may not run responders; name somebody who may.")
        erasure = _named(reads, login)
        erasure.handed_over, erasure.heir = timed, to
        erasure.counts["timed undo"] = len(timed)
        return erasure

    async def held_about(self, name: str, elsewhere: Rows) -> AsyncIterator[str]:
        """Each row of core's, and of the bot's `elsewhere`, that names somebody, as a line of JSON; without secrets."""
        login = self._people.full_login(name)
        links = await self.database.read(lambda reads: stored_people.links_of(reads, login))
        person = Erasure(login, slack=[f":{link['slack_user']}" for link in links])
        said = re.compile(rf"(?<![\w.-]){re.escape(login)}(?![\w-])", re.IGNORECASE)

        def matches(text: str) -> bool:
            return said.search(text) is not None or person.names(text)

        for place, rows in (("core", matching(STORE, self.database, matches)), ("bot", elsewhere(matches))):
            async for table, row in rows:
                kept = {column: row[column] for column in table.columns if column not in _SECRET}
                yield json.dumps({"in": place, "table": table.name, "row": kept})

    # --- deletion ---------------------------------------------------------------------------------------------------

    async def carry_out(
        self, erasure: Erasure, *, why: str = "", messages: Sequence[int] = (), is_forced: bool = False
    ) -> None:
        """Add the row, then delete. `messages` are the numbers of the bot's; `is_forced`: also what is open.

        Raises ResponderBotError: conflict, bad_request if something has changed since.
        """

        def begin(tx: Transaction) -> None:
            found = erasure
            if not is_forced:
                _require_due(tx, erasure)
                if erasure.is_person:
                    found = self._person(tx, erasure.object, erasure.heir)
            for kind, number in erasure.roots:  # also what was recorded since they were found
                ids = (item.id for item in stored.items(tx, kind, number, number))
                erasure.rows.update(stored.rows_about(tx, ids))
            stored.delete_texts(tx, found.rows)
            later = audit.texts_after(tx, erasure.read_to) if erasure.slack else []
            texts = erasure.texts | {(row["number"], row["name"]) for row in later if erasure.names(row["text"])}
            audit.delete_text(tx, texts)
            stored.hand_over(tx, found.handed_over, found.heir)
            if found.is_person:
                self._people.erase_in(tx, self._clock(), found.object)
            trail.record(
                tx,
                self._clock(),
                "erased",
                by=COMMAND_LINE.login,
                object=found.object,
                objects=[f"~{number}" for number in sorted(found.objects)],
                erased=sorted(found.rows | {number for number, _ in texts}),
                messages=sorted(messages),
                counts=dict(+erasure.counts),
                handed_over=[f"~{number}" for number in found.handed_over],
                to=found.heir if found.handed_over else None,
                person=found.is_person,
                texts={"reason": why, "slack": "" if is_forced else " ".join(found.slack)},
            )

        await self.database.transaction(begin)
        await self._retention.delete(erasure.roots, is_forced=is_forced)
        await self.overwrite_deleted()

    async def end(self, login: str) -> None:
        """Forget the ids in Slack of somebody who was erased, which were kept for whoever repeats it."""

        def work(tx: Transaction) -> bool:
            if numbers := sorted(_slack_of(tx, login)):
                audit.delete_text(tx, [(number, "slack") for number in numbers])
                by = COMMAND_LINE.login
                trail.record(tx, self._clock(), "erased", by=by, object=login, erased=numbers, person=True)
            return bool(numbers)

        if await self.database.transaction(work):
            await self.overwrite_deleted()

    async def overwrite_deleted(self) -> None:
        """Leave nothing in the files of what was deleted."""
        if self.database.dialect == "sqlite":
            await self.database.transaction(stored.merge_words)
        await self.database.overwrite_deleted()

    async def again(self, rows: Iterable[Mapping[str, Any]]) -> Erasure:
        """Erase what these rows of another copy say, whatever state it is in here; returns what that was."""
        erasure, heirs = Erasure("backup"), dict[str, str]()

        def read(reads: Reads) -> None:
            for row in rows:
                for text in row.get("objects", ()):
                    if objects.find_any(reads, number_of(text)) is not None:
                        _add_root(reads, erasure, number_of(text))
                if not row.get("person"):
                    erasure.rows.update(row.get("erased", ()))
                elif stored_people.by_login(reads, row["object"]) is not None:
                    heirs[row["object"]] = row.get("to") or heirs.get(row["object"], "")

        await self.database.snapshot(read)
        await self.carry_out(erasure, is_forced=True)
        for login, heir in heirs.items():
            person = await self.database.snapshot(partial(_named, login=login))
            if heir:
                person.heir, person.handed_over = heir, await self.database.read(partial(stored.timed_of, login=login))
            await self._find_texts(person)
            await self.carry_out(person, is_forced=True)
            erasure.slack = [*erasure.slack, *person.slack]
        return erasure


def erasures_in(file: Path) -> list[dict[str, Any]]:
    """The rows of an export of the audit that say what was erased. Raises ResponderBotError("bad_request")."""
    try:
        with file.open("rb") as lines:
            verify(lines)
        with file.open("rb") as lines:
            rows = [json.loads(line)["row"] for line in lines if line.startswith(b'{"hash":')]
    except ForgedError as error:
        raise ResponderBotError("bad_request", f"{file} is no true export of the audit: {error}") from error
    except OSError as error:
        sentence = f"{file} can't be read ({error.strerror}); name an export of the audit."
        raise ResponderBotError("bad_request", sentence) from error
    return [row for row in rows if row["what"] == "erased"]


def _named(reads: Reads, login: str) -> Erasure:
    """A person with what belongs to them."""
    slack = [f"{link['team']}:{link['slack_user']}" for link in stored_people.links_of(reads, login)]
    counts = Counter({"user": 1, "link": len(slack), "key": len(stored_people.keys_of(reads, login))})
    return Erasure(login, slack=slack, is_person=True, messages=_messages(reads), counts=counts)


def _begun(reads: Reads, number: int | None) -> set[int]:
    """The alerts and cases that were erased with this one, which Slack may still show; empty if it never was."""
    rows = [row for row in _erased(reads) if f"~{number}" in row.get("objects", ())]
    return {number_of(id_) for row in rows for id_ in row["objects"]}


def _slack_of(reads: Reads, login: str) -> dict[int, str]:
    """The ids in Slack, with blanks between, of somebody whose erasure hasn't ended, by the row that says it began."""
    rows = {row["number"] for row in audit.erasures_after(reads, 0) if json.loads(row["doc"])["object"] == login}
    texts = audit.texts(reads, sorted(rows))
    return {number: text.text for number, of_row in texts.items() for text in of_row if text.name == "slack"}


def _messages(reads: Reads) -> set[int]:
    return {number for row in _erased(reads) for number in row.get("messages", ())}


def _erased(reads: Reads) -> list[dict[str, Any]]:
    """The rows of the audit that say what was erased."""
    return [json.loads(row["doc"]) for row in audit.erasures_after(reads, 0)]


def _add_root(reads: Reads, erasure: Erasure, number: int) -> None:
    """Add an alert or a case with all that belongs to it."""
    row = objects.find_any(reads, number)
    if row is None or number in erasure.ids or row["kind"] not in ROOTS:
        return
    root: stored.Root = row["kind"]
    erasure.roots.append((root, number))
    items = list(stored.items(reads, root, number, number))
    erasure.objects.update(item.id for item in items if item.kind in ROOTS)
    erasure.ids.update(item.id for item in items)
    erasure.counts.update(Counter(item.kind for item in items))
    erasure.counts["file"] += sum(len(attachments.files_of(reads, item.id)) for item in items if item.kind != "action")
    erasure.rows.update(stored.rows_about(reads, (item.id for item in items)))


def _require_due(reads: Reads, erasure: Erasure) -> None:
    there = [number for _, number in erasure.roots if stored.root_of(reads, number) is not None]
    staying = [number for number in there if not stored.is_due(reads, number, FOR_EVER)]
    if staying:
        is_are = "is" if len(staying) == 1 else "are"
        sentence = f"{_ids(staying)} {is_are} open, or a run on it waits, runs or is in force; end that first."
        raise ResponderBotError("conflict", f"{sentence} Nothing was erased.")


def _ids(numbers: Sequence[int]) -> str:
    return some_of([f"~{number}" for number in numbers], 5)
