"""Deletes what the bot keeps of what is erased, and its messages and files in Slack (core/docs/storage.md#erasure)."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence

from slack_sdk.web.async_client import AsyncWebClient

from bot.outbox import alert_groups, state
from bot.outbox.errors import classify
from bot.outbox.models import LAST_ALERT, is_person
from bot.outbox.sending.files import DELETE_FILE, NO_FILE
from bot.outbox.store import STORES, Stores
from core.common.database import Row, Transaction
from core.common.database.shrinking import shrink
from core.common.database.transfer import Table, delete, matching
from core.common.tasks import Backoff

ATTEMPTS = 5
AFTER_FAILURE = Backoff(1.0, 4.0)
_OWN = ("state", "replica")  # which name nothing of an alert or a person


class Erasure:
    """What goes; without `slack` nothing can be deleted there."""

    def __init__(self, stores: Stores, slack: AsyncWebClient | None) -> None:
        self._stores = stores
        self._store = stores.messages
        self._slack = slack
        self._messages: set[int] = set()
        """Their numbers."""
        self._rows: list[tuple[Table, Row]] = []
        self._groups: set[str] = set()
        """The keys of groups that have an alert which goes."""
        self.counts: Counter[str] = Counter()
        """How much of each kind was found."""

    async def find(self, matches: Callable[[str], bool], numbers: Collection[int] = ()) -> Sequence[int]:
        """Look for what has a text that matches, and for messages with these numbers; returns those of all messages."""
        keys = set[str]()
        async for table, row in self.rows(matches):
            if table.name == "message":
                self._messages.add(row["number"])
            elif table.name == "file":
                keys.add(row["message_key"])
            elif table.name not in _OWN:
                self._rows.append((table, row))
                if table.name == "channel_alert" and row["group_key"]:
                    keys.add(row["group_key"])  # its card sums up what goes
                    self._groups.add(row["group_key"])
        sql = (
            "SELECT number FROM message WHERE key IN (SELECT value FROM json_each(:keys)) UNION"
            " SELECT number FROM message WHERE number IN (SELECT CAST(value AS BIGINT) FROM json_each(:numbers))"
        )
        values = {"keys": json.dumps(list(keys)), "numbers": json.dumps(list(numbers))}
        self._messages.update(row["number"] for row in await self._store.read(lambda reads: reads.rows(sql, values)))
        self.counts = Counter(table.name for table, _ in self._rows)
        self.counts["message"] = len(self._messages)
        return sorted(self._messages)

    async def rows(self, matches: Callable[[str], bool]) -> AsyncIterator[tuple[Table, Row]]:
        """Each row that has a text which matches."""
        for store, database in zip(STORES, (self._store, self._stores.inbox), strict=True):
            async for table, row in matching(store, database, matches):
                yield table, row

    async def delete(self) -> Sequence[str]:
        """Delete what was found; returns why some of it stays in Slack, in sentences.

        What a card is rendered from goes first. The card of a group is posted again if it has other alerts.
        """
        problems = list[str]()

        def forget_clicks(tx: Transaction) -> None:
            for table, row in self._rows:
                if table.name == "inbox":
                    delete(tx, table, row)

        def forget(tx: Transaction) -> None:
            for table, row in self._rows:
                if table.name != "inbox":
                    delete(tx, table, row)
            alert_groups.delete_empty(tx, self._groups)
            state.delete_value(tx, "asked")  # it names people, and counts within minutes

        await self._stores.inbox.transaction(forget_clicks)
        await self._store.transaction(forget)
        sql = "SELECT * FROM message WHERE number = :number"
        for number in sorted(self._messages):
            message = await self._store.read(lambda reads, number=number: reads.row(sql, {"number": number}))  # type: ignore[misc]
            if message is None:
                continue
            if problem := await self._delete_in_slack(message):
                problems.append(problem)
            else:
                await self._store.transaction(lambda tx, key=message["key"]: _forget(tx, key))  # type: ignore[misc]
        for store in {self._store, self._stores.inbox}:
            await shrink(store)
            await store.overwrite_deleted()
        return list(dict.fromkeys(problems))

    async def _delete_in_slack(self, message: Row) -> str:
        """Delete a message and its file; returns why that can't be done, or ""."""
        key, channel = message["key"], message["conversation"] or message["channel"]
        sql = "SELECT slack_id FROM file WHERE message_key = :key AND slack_id <> ''"
        file = await self._store.read(lambda reads: reads.row(sql, {"key": key}))
        if not message["ts"] and file is None:
            if message["status"] != "posting":
                return ""
            return f"A message to {channel} may be on its way to Slack; repeat this in a minute."
        if self._slack is None:
            return "Messages stay in Slack, since there is no [slack] bot_token; set it, and repeat this."
        if file is not None and (problem := await self._call(DELETE_FILE, file=file["slack_id"])):
            return f"{problem} So a file in {channel} stays in Slack."
        if not message["ts"] or is_person(channel):
            return ""
        problem = await self._call("chat.delete", channel=channel, ts=message["ts"])
        return f"{problem} So a message in {channel} stays in Slack." if problem else ""

    async def _call(self, method: str, **values: str) -> str:
        """Call a method until Slack answers; returns why it refuses, or ""."""
        failure = None
        for failures in range(1, ATTEMPTS + 1):
            try:
                await self._slack.api_call(method, json=values)  # type: ignore[union-attr]
            except Exception as error:
                failure = classify(error, values.get("channel", ""))
                if failure.kind == "deleted" or failure.code in NO_FILE:
                    return ""
                if not failure.is_temporary:
                    break
                await asyncio.sleep(failure.wait_s or AFTER_FAILURE.after(failures))
            else:
                return ""
        return failure.message if failure else ""


def _forget(tx: Transaction, key: str) -> None:
    for sql in (
        "DELETE FROM file WHERE message_key = :key",
        "DELETE FROM button_set WHERE message_key = :key",
        "DELETE FROM message WHERE key = :key",
    ):
        tx.run(sql, {"key": key})
    alert_groups.request_update(tx, key, LAST_ALERT)
