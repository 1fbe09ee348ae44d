"""Opaque ids of buttons: what they mean is stored here and never in Slack.

Each message, and each view of one person, has a random nonce and a list of what its buttons mean. An id is the nonce
and a digest that finds the meaning in that list.
"""

import json
import secrets
from collections.abc import Callable
from typing import TypeVar

from bot.message import ButtonIds, Intent
from bot.outbox import messages
from bot.outbox.models import ButtonSet, MessageRecord, is_bulk, record_of
from core.common.database import Database, Reads, Row, Transaction
from core.common.errors import ResponderBotError

T = TypeVar("T")

NONCE_BYTES = 16  # 128 random bits: nobody guesses one
MAX_INTENTS = 200  # the newest of a message whose content changes again and again
LIFE_MS = 7 * 86_400_000
EPHEMERAL = "only:"  # keys of messages that only one person sees: only:<team>:<user>:<about>


class Buttons:
    """The ids in messages and views; each is bound to a channel and a message, and expires."""

    def __init__(self, store: Database, clock_ms: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock_ms

    async def issue(self, channel: str, message_key: str, render: Callable[[ButtonIds], T]) -> T:
        """Render with ids that are bound to the channel ("" for views) and the message, and store them."""
        buttons = await self.prepare(channel, message_key)
        rendered = render(buttons)
        if not buttons.intents.keys() <= buttons.stored:
            await self._store.transaction(lambda tx: save(tx, buttons))
        return rendered

    async def prepare(self, channel: str, message_key: str) -> ButtonSet:
        """The buttons for the next rendering of a message.

        A nonce with more than half of its life left is used again, so that an unchanged card stays unchanged.
        """
        now = self._clock()
        sql = (
            "SELECT * FROM button_set WHERE message_key = :message_key AND channel = :channel AND expires_at > :after"
            " ORDER BY expires_at DESC LIMIT 1"
        )
        values = {"channel": channel, "message_key": message_key, "after": now + LIFE_MS // 2}
        row = await self._store.read(lambda reads: reads.row(sql, values))
        if row is None:
            nonce = secrets.token_urlsafe(NONCE_BYTES)
            return ButtonSet(channel, message_key, nonce, now + LIFE_MS, frozenset())
        return ButtonSet(channel, message_key, row["nonce"], row["expires_at"], frozenset(json.loads(row["intents"])))

    async def rotate(self, token: str) -> None:
        """Let the next rendering use another nonce; this one still works, also in old cards.

        Slack keeps showing the entry that was chosen in a menu for as long as the menu's block has the same id.
        """
        sql = "UPDATE button_set SET expires_at = min(expires_at, :until) WHERE nonce = :nonce"
        values = {"nonce": _nonce(token), "until": self._clock() + LIFE_MS // 2}
        await self._store.transaction(lambda tx: tx.run(sql, values))

    async def resolve(self, token: str, *, channel: str, message_ts: str, user: str) -> Intent:
        """What a clicked button means; it can be clicked again.

        Raises ResponderBotError: "gone" for one that is expired, forwarded or forged (with `root_id` in the details
        where it is ours and only expired, so that Refresh can be offered).
        """

        def work(reads: Reads) -> tuple[Row | None, MessageRecord | None]:
            row = reads.row("SELECT * FROM button_set WHERE nonce = :nonce", {"nonce": _nonce(token)})
            message = messages.by_key(reads, row["message_key"]) if row else None
            return row, record_of(message) if message else None

        row, message = await self._store.read(work)
        meaning = json.loads(row["intents"]).get(token.partition(".")[2]) if row else None
        if row is None or meaning is None or not _belongs_here(row, message, channel, message_ts, user):
            raise ResponderBotError("gone", "This button does not belong here; nothing was run. Refresh the card.")
        intent = Intent(*meaning)
        if row["expires_at"] <= self._clock():
            of_bulk = row["message_key"] if is_bulk(row["message_key"]) else ""
            root_id = of_bulk or (message.root_id if message else "") or intent.object_id
            sentence = "This button is too old; nothing was run. Refresh the card."
            raise ResponderBotError("gone", sentence, details={"root_id": root_id})
        return intent


def save(tx: Transaction, buttons: ButtonSet) -> None:
    """Store what the buttons of a rendering mean, beside what those of the renderings before mean."""
    if buttons.intents.keys() <= buttons.stored:
        return
    stored = tx.value("SELECT intents FROM button_set WHERE nonce = :nonce", {"nonce": buttons.nonce})
    own = {digest: list(vars(intent).values()) for digest, intent in buttons.intents.items()}
    before = {digest: words for digest, words in json.loads(stored or "{}").items() if digest not in own}
    kept = dict([*before.items(), *own.items()][-max(MAX_INTENTS, len(own)) :])
    about = {"nonce": buttons.nonce, "channel": buttons.channel, "message_key": buttons.message_key}
    row = {**about, "expires_at": buttons.expires_at, "intents": json.dumps(kept, ensure_ascii=False)}
    tx.insert("button_set", row, otherwise="(nonce) DO UPDATE SET intents = excluded.intents")


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


def _nonce(token: str) -> str:
    return token.partition(".")[0]
