"""Which message of a channel shows an alert: its own card, or that of a group (bot/docs/storms.md)."""

# ruff: noqa: S608  # every fragment is a constant of this module, every value is bound

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bot.clearance import SHARED
from bot.outbox.messages import IS_STALE, PENDING, forget_unsent
from bot.outbox.models import FIRST_ALERT, FOR_PERSON, IN_BULK, LAST_ALERT
from bot.storms import MIN_STORM, STORM_MS, GroupContent, Storm
from core.common.database import Params, Row, Transaction
from core.common.grouping import grouped

if TYPE_CHECKING:
    from core.common.database import Database

GROUP, DIGEST = "group", "digest"  # the kinds of messages that show several alerts, as their keys begin
SAMPLE = 500  # alerts of a group, the newest, whose texts its card sums up
WORST = 5  # open alerts of a group, which its card names
OWN_CARD, NEEDED_CARD, NO_CARD = "own", "needed", "later"  # values of `card`; one is needed where somebody works on it
_HAS_CARD = f"card IN ('{OWN_CARD}', '{NEEDED_CARD}')"
UNKNOWN_LEVEL = 4  # above each clearance: what may be shown of an alert isn't known


@dataclass(frozen=True)
class ChannelAlert:
    """An alert as a channel shows it. Its texts are as `clearance` may see them."""

    channel: str
    root_id: str
    alike: str  # a digest of what the alerts that say the same have in common
    group: str  # the key of its group's message; "" for none
    card: str  # whether it has one of its own, and why: a value above
    at: int  # when core got it
    severity: int
    clearance: int
    title: str = ""  # "" if it may not be shown
    source: str = ""
    facts: Sequence[str] = ()  # such as `ip 198.51.100.7`
    is_closed: bool = False  # or in a case

    @property
    def has_card(self) -> bool:
        return self.card in (OWN_CARD, NEEDED_CARD)


@dataclass(frozen=True)
class AlertGroup:
    """Alerts that share one card in a channel. Times are in ms."""

    key: str
    channel: str
    alike: str  # "" for a digest
    began_at: int
    last_at: int  # when its newest alert came
    muted_until: int = 0
    muted_by: str = ""  # a login; "" where nobody noted it
    changes: int = 0
    rank: int | None = None  # of the update that its card needs; None: it needs none

    @property
    def is_digest(self) -> bool:
        return self.key.startswith(f"{DIGEST}:")

    @property
    def is_over_at(self) -> int:
        """When its storm is over if no more alerts come, or when it is no longer muted; 0: nothing goes on."""
        return self.last_at + STORM_MS if self.is_digest else self.muted_until


@dataclass
class GroupChanges:
    """What a page of the feed changes, to be written with it."""

    new_groups: dict[str, AlertGroup] = field(default_factory=dict)
    collects_since: dict[str, int] = field(default_factory=dict)  # by new group: alerts since then are in it
    alerts: dict[tuple[str, str], ChannelAlert] = field(default_factory=dict)
    ranks: dict[str, int] = field(default_factory=dict)  # by group: of the update that it needs
    full: dict[str, int] = field(default_factory=dict)  # by digest: the highest rank of what goes into it

    def needs_update(self, group: str, rank: int) -> None:
        if group:
            self.ranks[group] = min(rank, self.ranks.get(group, rank))


def new_key(kind: str, channel: str) -> str:
    """The key of a group's message."""
    return f"{kind}:{secrets.token_hex(8)}:{channel}"


def is_group(key: str) -> bool:
    return key.partition(":")[0] in (GROUP, DIGEST)


class AlertGroups:
    """The groups of all channels."""

    def __init__(self, store: "Database") -> None:
        self._store = store

    # --- reading ----------------------------------------------------------------------------------------------------

    async def _rows(self, sql: str, params: Params) -> list[Row]:
        return await self._store.read(lambda reads: reads.rows(sql, params))

    async def _row(self, sql: str, params: Params) -> Row | None:
        return await self._store.read(lambda reads: reads.row(sql, params))

    async def group(self, key: str) -> AlertGroup | None:
        row = await self._row("SELECT * FROM alert_group WHERE key = :key", {"key": key})
        return _group(row) if row else None

    async def open_group(self, channel: str, alike: str, since: int, now: int) -> AlertGroup | None:
        """The newest group of such alerts ("": the digest) with one since then, or that is muted now.

        None if somebody has deleted its card.
        """
        row = await self._row(
            """SELECT g.*, m.status FROM alert_group g LEFT JOIN message m ON m.key = g.key
               WHERE g.channel = :channel AND g.alike = :alike AND (g.last_at > :since OR g.muted_until > :now)
               ORDER BY g.last_at DESC LIMIT 1""",
            {"channel": channel, "alike": alike, "since": since, "now": now},
        )
        return None if row is None or row["status"] == "deleted" else _group(row)

    async def alike(self, channel: str, alike: str, since: int) -> tuple[int, int]:
        """How many alerts that say the same have come since then, and how many critical ones."""
        row = await self._row(
            """SELECT count(*) AS n, count(*) FILTER (WHERE severity = 4) AS critical FROM channel_alert
               WHERE channel = :channel AND alike = :alike AND at > :since""",
            {"channel": channel, "alike": alike, "since": since},
        )
        return (row["n"], row["critical"]) if row else (0, 0)

    async def channel_alerts(self, root_ids: Iterable[str]) -> dict[str, list[ChannelAlert]]:
        """Where these alerts stand."""
        rows = await self._rows(
            "SELECT * FROM channel_alert WHERE root_id IN (SELECT value FROM json_each(:ids))",
            {"ids": json.dumps(list(root_ids))},
        )
        return grouped((row["root_id"], _channel_alert(row)) for row in rows)

    async def groups_of(self, root_ids: Iterable[str]) -> dict[str, str]:
        """The keys of the groups of those of these alerts that are in one; a digest is none."""
        rows = await self._rows(
            f"""SELECT root_id, group_key FROM channel_alert
                WHERE root_id IN (SELECT value FROM json_each(:ids)) AND group_key LIKE '{GROUP}:%'""",
            {"ids": json.dumps(list(root_ids))},
        )
        return {row["root_id"]: row["group_key"] for row in rows}

    async def of_one_title(self, keys: Iterable[str], clearance: int) -> set[str]:
        """Those of these groups whose alerts all have the same title, as far as it may be shown."""
        rows = await self._rows(
            """SELECT group_key FROM channel_alert WHERE group_key IN (SELECT value FROM json_each(:keys))
               AND group_key <> '' AND clearance <= :clearance AND title <> ''
               GROUP BY group_key HAVING count(DISTINCT title) = 1""",
            {"keys": json.dumps(list(keys)), "clearance": clearance},
        )
        return {row["group_key"] for row in rows}

    async def unsent_alerts(self, channel: str, rank: int, limit: int) -> int:
        """How many new alerts of this rank or a higher one wait for their post, counted up to `limit`."""
        sql = f"""SELECT count(*) AS n FROM (
                  SELECT 1 FROM message INDEXED BY message_next WHERE channel = :channel AND status = 'unsent'
                    AND {PENDING} AND rank <= :rank LIMIT :limit) AS found"""
        values = {"channel": channel, "rank": rank, "limit": limit}
        return await self._store.read(lambda reads: reads.number(sql, values))

    async def newest_in(self, key: str, severity: int, since: int, now: int, limit: int) -> int:
        """How many alerts as severe or more are only in this digest and came since then, counted up to `limit`."""
        sql = f"""SELECT count(*) AS n FROM (
                  SELECT 1 FROM channel_alert INDEXED BY channel_alert_of_group
                  WHERE group_key = :key AND group_key <> '' AND at > :since AND at <= :now AND severity >= :severity
                    AND NOT {_HAS_CARD} LIMIT :limit) AS found"""
        values = {"key": key, "severity": severity, "since": since, "now": now, "limit": limit}
        return await self._store.read(lambda reads: reads.number(sql, values))

    async def changed(self, now: int, rank: int = IN_BULK) -> list[AlertGroup]:
        """Groups whose cards need an update of this rank or a higher one, or have none yet; the most urgent first.

        Also those whose storm or mute is over by now.
        """
        rows = await self._rows(
            f"""SELECT g.* FROM alert_group g LEFT JOIN message m ON m.key = g.key
                WHERE {_IS_WAITING}
                  AND (g.rank <= :rank OR (g.rank IS NOT NULL AND m.key IS NULL) OR g.over_at <= :now)
                ORDER BY coalesce(g.rank, {IN_BULK}), g.last_at""",
            {"rank": rank, "now": now},
        )
        return [_group(row) for row in rows]

    async def are_waiting(self) -> bool:
        """Whether a card needs an update now or later."""
        return await self._row(f"SELECT 1 FROM alert_group g WHERE {_IS_WAITING} LIMIT 1", {}) is not None

    async def stale(self, channel: str, clearance: int) -> list[AlertGroup]:
        """Groups whose cards were rendered for another clearance than this."""
        rows = await self._rows(
            f"""SELECT g.* FROM message m JOIN alert_group g ON g.key = m.key
               WHERE {IS_STALE} AND m.status <> 'deleted'""",
            {"channel": channel, "clearance": clearance},
        )
        return [_group(row) for row in rows]

    async def content(self, group: AlertGroup, clearance: int) -> GroupContent:
        """What the group's card says, within this clearance; `count` is 0 if it may say nothing."""
        values: dict[str, str | int] = {"key": group.key, "clearance": clearance}
        (row,) = await self._rows(
            f"""SELECT count(*) AS count, count(*) FILTER (WHERE {_HAS_CARD}) AS cards,
                 count(*) FILTER (WHERE is_closed = 1) AS closed, coalesce(min(at), 0) AS first_at,
                 count(*) FILTER (WHERE severity = 1) AS s1, count(*) FILTER (WHERE severity = 2) AS s2,
                 count(*) FILTER (WHERE severity = 3) AS s3, count(*) FILTER (WHERE severity = 4) AS s4
               FROM channel_alert INDEXED BY channel_alert_of_group
               WHERE group_key = :key AND group_key <> '' AND {_MAY_BE_COUNTED}""",
            values,
        )
        sample = await self._rows(
            f"""SELECT * FROM channel_alert WHERE group_key = :key AND group_key <> '' AND {_MAY_BE_COUNTED}
               ORDER BY at DESC, length(root_id) DESC, root_id DESC LIMIT :limit""",
            {**values, "limit": SAMPLE},
        )
        shown = [alert for alert in map(_channel_alert, sample) if alert.clearance <= clearance and alert.title]
        worst = list[Row]()
        for severity in (n for n in (4, 3, 2, 1) if row[f"s{n}"] and len(worst) < WORST):
            worst += await self._rows(
                """SELECT * FROM channel_alert WHERE group_key = :key AND group_key <> '' AND severity = :severity
                   AND is_closed = 0 AND clearance <= :clearance AND title <> ''
                   ORDER BY at DESC, length(root_id) DESC, root_id DESC LIMIT :limit""",
                {**values, "severity": severity, "limit": WORST - len(worst)},
            )
        return GroupContent(
            **{name: getattr(group, name) for name in ("key", "is_digest", "last_at", "muted_until", "muted_by")},
            **{name: row[name] for name in ("count", "cards", "closed", "first_at")},
            severities=Counter({n: row[f"s{n}"] for n in (1, 2, 3, 4)}),
            worst=[(one["severity"], one["title"], one["root_id"]) for one in worst],
            sampled=len(sample),
            titles=Counter(alert.title for alert in shown).most_common(),
            sources=Counter(alert.source for alert in shown).most_common(),
            facts=Counter(fact for alert in shown for fact in alert.facts).most_common(),
        )

    async def members(self, key: str, offset: int, limit: int) -> list[ChannelAlert]:
        """The alerts of a group, the most severe first, and of these the newest."""
        rows = await self._rows(
            """SELECT * FROM channel_alert WHERE group_key = :key AND group_key <> ''
               ORDER BY severity DESC, at DESC, length(root_id) DESC, root_id DESC LIMIT :limit OFFSET :offset""",
            {"key": key, "offset": offset, "limit": limit},
        )
        return [_channel_alert(row) for row in rows]

    async def storms(self, now: int) -> list[Storm]:
        """The storms that go on, one for each channel."""
        rows = await self._rows(
            f"""SELECT g.channel, count(DISTINCT g.key) AS groups, min(g.began_at) AS since, count(*) AS alerts,
                  count(*) FILTER (WHERE p.is_closed = 0) AS open
                FROM alert_group g
                  JOIN channel_alert p INDEXED BY channel_alert_of_group ON p.group_key = g.key AND p.group_key <> ''
                WHERE g.last_at > :since GROUP BY g.channel
                HAVING count(*) >= {MIN_STORM} OR count(*) FILTER (WHERE g.key LIKE 'digest:%') > 0
                ORDER BY g.channel""",
            {"since": now - STORM_MS},
        )
        return [Storm(**{name: row[name] for name in Storm.__dataclass_fields__}) for row in rows]

    # --- what people change -----------------------------------------------------------------------------------------

    async def mute(self, key: str, until: int, by: str) -> None:
        """Count alerts like these in the group until then, but critical ones; 0: no more. `by` is a login."""
        sql = "UPDATE alert_group SET muted_until = :until, muted_by = :by WHERE key = :key"

        def work(tx: Transaction) -> None:
            tx.run(sql, {"key": key, "until": until, "by": by})
            request_update(tx, key, FOR_PERSON)

        await self._store.transaction(work)


# Nothing tells a shared channel how many alerts stand there that it may not see.
_MAY_BE_COUNTED = f"(:clearance <> {SHARED} OR (clearance <= :clearance AND title <> ''))"
_IS_WAITING = "(g.rank IS NOT NULL OR g.over_at IS NOT NULL)"  # as in the index `alert_group_changed`
_RANK = "CASE WHEN rank <= :rank THEN rank ELSE :rank END"  # the more urgent of both


# --- writing --------------------------------------------------------------------------------------------------------


def request_update(tx: Transaction, key: str, rank: int) -> None:
    """Let the Notifier render the group's card again."""
    tx.run(f"UPDATE alert_group SET rank = {_RANK}, changes = changes + 1 WHERE key = :key", {"key": key, "rank": rank})


def delete_empty(tx: Transaction, keys: Iterable[str]) -> None:
    """Delete those of these groups that have no alert any more."""
    tx.run_all(
        """DELETE FROM alert_group WHERE key = :key
           AND NOT EXISTS (SELECT 1 FROM channel_alert WHERE group_key = :key AND group_key <> '')""",
        [{"key": key} for key in keys],
    )


def rendered(tx: Transaction, group: AlertGroup) -> None:
    """The group's card was rendered, as the group was when it was read.

    One that may tell of a storm or a mute is rendered once more, when that is over.
    """
    over_at = None if group.rank is None else group.is_over_at or None
    sql = "UPDATE alert_group SET rank = NULL, over_at = :over_at WHERE key = :key AND changes = :changes"
    tx.run(sql, {**vars(group), "over_at": over_at})


def write(tx: Transaction, group_changes: GroupChanges) -> None:
    """Store where alerts stand."""
    for group in group_changes.new_groups.values():
        tx.run(
            """INSERT INTO alert_group (key, channel, alike, began_at, last_at)
               VALUES (:key, :channel, :alike, :began_at, :last_at)""",
            vars(group),
        )
    tx.run_all(
        """INSERT INTO channel_alert (channel, root_id, alike, group_key, card, at, severity, clearance, title, source,
               facts, is_closed)
           VALUES (:channel, :root_id, :alike, :group, :card, :at, :severity, :clearance, :title, :source, :facts,
               :is_closed)
           ON CONFLICT (root_id, channel) DO UPDATE SET group_key = :group, card = :card, severity = :severity,
               clearance = :clearance, title = :title, source = :source, facts = :facts,
               is_closed = :is_closed""",
        [
            {
                **vars(alert),
                "facts": json.dumps(list(alert.facts), ensure_ascii=False),
                "is_closed": int(alert.is_closed),
            }
            for alert in group_changes.alerts.values()
        ],
    )
    newest: dict[str, int] = {}
    for alert in group_changes.alerts.values():
        newest[alert.group] = max(alert.at, newest.get(alert.group, 0))
    for key, since in group_changes.collects_since.items():
        group = group_changes.new_groups[key]
        tx.run(
            """UPDATE channel_alert SET group_key = :key WHERE channel = :channel AND alike = :alike AND at > :since
                   AND (group_key = '' OR group_key LIKE 'digest:%')""",
            {"key": key, "channel": group.channel, "alike": group.alike, "since": since},
        )
        _show_only_in(tx, key, key, FIRST_ALERT + 1)
    for key, rank in group_changes.full.items():
        _show_only_in(tx, key, "", max(rank, FIRST_ALERT + 1))
    for key, rank in group_changes.ranks.items():
        tx.run(
            "UPDATE alert_group SET last_at = max(last_at, :at) WHERE key = :key",
            {"key": key, "at": newest.get(key, 0)},
        )
        request_update(tx, key, rank)


def _show_only_in(tx: Transaction, key: str, before: str, rank: int) -> None:
    """Show alerts only in this group or digest whose cards, of this rank or a lower one, still wait for their post.

    `before` is the group in which they are until now. A card that is needed, that a person waits for, or that has
    replies, is posted.
    """
    waiting = tx.rows(
        f"""SELECT m.key, m.channel, m.root_id FROM message m INDEXED BY message_next
              JOIN channel_alert a ON a.root_id = m.root_id AND a.channel = m.channel AND a.group_key = :before
            WHERE m.channel = :channel AND m.status = 'unsent' AND m.{PENDING} AND m.rank BETWEEN :rank AND {LAST_ALERT}
              AND a.card = '{OWN_CARD}' AND m.thread_of = '' AND m.duplicate_check_at = 0
              AND NOT EXISTS (SELECT 1 FROM message r WHERE r.thread_of = m.key AND r.thread_of <> '')""",
        {"channel": key.rpartition(":")[2], "before": before, "rank": rank},
    )
    for row in waiting:
        tx.run(
            f"""UPDATE channel_alert SET group_key = :group, card = '{NO_CARD}'
                WHERE root_id = :root_id AND channel = :channel""",
            {**dict(row), "group": key},
        )
        forget_unsent(tx, row["key"])


def forget_texts(tx: Transaction) -> None:
    """Show no text of any alert until it is read again: its levels may have changed unnoticed."""
    tx.run("UPDATE channel_alert SET clearance = :unknown", {"unknown": UNKNOWN_LEVEL})
    tx.run(f"UPDATE alert_group SET rank = {_RANK}, changes = changes + 1", {"rank": LAST_ALERT})


def _group(row: Row) -> AlertGroup:
    return AlertGroup(**{name: row[name] for name in AlertGroup.__dataclass_fields__})


def _channel_alert(row: Row) -> ChannelAlert:
    values = {name: row[name] for name in ChannelAlert.__dataclass_fields__ if name != "group"}
    values["facts"] = tuple(json.loads(row["facts"]))
    return ChannelAlert(**values, group=row["group_key"])
