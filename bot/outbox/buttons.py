"""Opaque button ids: what they mean is stored here and never in Slack."""

import secrets
from collections.abc import Callable, Sequence

from bot.cards.message import ButtonIds, Intent
from bot.outbox import messages
from bot.outbox.models import Button, MessageRecord, is_bulk, record_of
from bot.outbox.state import refuse_mismatch
from core.common.database import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError

ID_BYTES = 16  # 128 random bits: nobody guesses one
LIFE_MS = 7 * 86_400_000
EPHEMERAL = "only:"  # keys of messages that only one person sees: only:<team>:<user>:<about>


class Buttons:
    """The ids in messages and views; each is bound to a channel and a message, and expires."""

    def __init__(self, store: Database, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock_ms

    async def issue(self, channel: str, message_key: str, intents: Sequence[Intent]) -> ButtonIds:
        """Store ids for these intents, bound to the channel ("" for views) and the message, and return them."""
        ids, new = await self.prepare(channel, message_key, intents)
        if new:
            await self._store.transaction(lambda tx: insert(tx, channel, message_key, new))
        return ids

    async def prepare(
        self, channel: str, message_key: str, intents: Sequence[Intent]
    ) -> tuple[ButtonIds, tuple[Button, ...]]:
        """Ids for these intents, and those of them that are new and must be stored with the message.

        An id with more than half of its life left is used again, so that an unchanged card stays unchanged.
        """
        known = await self._reusable(channel, message_key)
        expires_at = self._clock() + LIFE_MS
        new = tuple(
            Button(secrets.token_urlsafe(ID_BYTES), intent, expires_at) for intent in intents if intent not in known
        )
        return {**known, **{button.intent: button.token for button in new}}.__getitem__, new

    async def _reusable(self, channel: str, message_key: str) -> dict[Intent, str]:
        sql = "SELECT * FROM button WHERE channel = :channel AND message_key = :message_key AND expires_at > :after"
        values = {"channel": channel, "message_key": message_key, "after": self._clock() + LIFE_MS // 2}
        rows = await self._store.read(lambda reads: reads.rows(sql, values))
        return {_intent(row): row["token"] for row in rows}

    async def rotate(self, token: str) -> None:
        """Let the next rendering use another id; this one still works, also in old cards.

        Slack keeps showing the entry that was chosen in a menu for as long as the menu's block has the same id.
        """
        sql = "UPDATE button SET expires_at = min(expires_at, :until) WHERE token = :token"
        until = self._clock() + LIFE_MS // 2
        await self._store.transaction(lambda tx: tx.run(sql, {"token": token, "until": until}))

    async def resolve(self, token: str, *, channel: str, message_ts: str, user: str) -> Intent:
        """What a clicked button means; it can be clicked again.

        Raises ResponderBotError: "gone" for one that is expired, forwarded or forged (with `root_id` in the details
        where it is ours and only expired, so that Refresh can be offered); "conflict" while core's database is not the
        one that the messages belong to.
        """

        def work(reads: Reads) -> tuple[Row | None, MessageRecord | None]:
            refuse_mismatch(reads)
            row = reads.row("SELECT * FROM button WHERE token = :token", {"token": token})
            found = messages.by_key(reads, row["message_key"]) if row else None
            return row, record_of(found) if found else None

        row, message = await self._store.read(work)
        if row is None or not _belongs_here(row, message, channel, message_ts, user):
            raise ResponderBotError("gone", "This button does not belong here; nothing was run. Refresh the card.")
        if row["expires_at"] <= self._clock():
            about = row["message_key"] if is_bulk(row["message_key"]) else row["object_id"]
            root_id = (message.root_id if message else "") or str(about)
            sentence = "This button is too old; nothing was run. Refresh the card."
            raise ResponderBotError("gone", sentence, details={"root_id": root_id})
        return _intent(row)


def insert(tx: Transaction, channel: str, message_key: str, buttons: Sequence[Button]) -> None:
    """Store new buttons of a message."""
    tx.run_all(
        """INSERT INTO button (token, channel, message_key, what, object_id, argument, expires_at)
           VALUES (:token, :channel, :message_key, :what, :object_id, :argument, :expires_at)""",
        [
            {
                "token": button.token,
                "channel": channel,
                "message_key": message_key,
                **vars(button.intent),
                "expires_at": button.expires_at,
            }
            for button in buttons
        ],
    )


def _belongs_here(row: Row, message: MessageRecord | None, channel: str, message_ts: str, user: str) -> bool:
    key = row["message_key"]
    if key.startswith(EPHEMERAL) and key.split(":")[2] != user:
        return False
    if not row["channel"]:
        return True  # in a view, which only its person has
    if message is None:
        return bool(row["channel"] == channel)  # in an ephemeral message, whose ts Slack doesn't tell
    if channel not in (message.channel, message.slack_channel):
        return False
    # A post whose answer is still out has no ts yet; the click itself shows that the message exists.
    return message.ts == message_ts or not message.ts


def _intent(row: Row) -> Intent:
    return Intent(row["what"], row["object_id"], row["argument"])
