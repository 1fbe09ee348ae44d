"""The SQL of the message table."""

# ruff: noqa: S608  # every fragment is a constant of this module or a made-up parameter name, every value is bound

from collections.abc import Collection

from core.common.database.sqlite import Reads, Row, Transaction

_RECORDS = (
    "SELECT m.*, coalesce(root.ts, '') AS root_ts FROM message m LEFT JOIN message root ON root.key = m.thread_of"
)
# A file that must be deleted is deleted also if its message is gone, since Slack shows it in a message of its own.
# The first condition is the one of the partial index `message_open`, word for word.
_PENDING = "(sent_version < version OR file_sent = 0) AND (is_deleted = 0 OR file_sent = 0 AND file_name = '')"
# As above, but a reply waits until its root is posted.
_SENDABLE = (
    "(m.sent_version < m.version OR m.file_sent = 0) AND"
    " (m.is_deleted = 0 AND (m.thread_of = '' OR root.ts <> '') OR m.file_sent = 0 AND m.file_name = '')"
)
UNKNOWN = -1  # the clearance of a message that must be checked before it is sent
_CALL = (
    "CASE WHEN m.sent_version >= m.version OR m.is_deleted = 1 THEN 'file' WHEN m.ts = '' THEN 'post' ELSE 'update' END"
)

# Progress waits a little to be merged, and a message is updated by events at most once in `bundle_ms`.
_NEXT_UPDATE = (
    "max(:soon, CASE WHEN :is_progress = 1 THEN message.event_updated_at ELSE message.nonprogress_updated_at END"
    " + :bundle_ms)"
)


def upsert(tx: Transaction, values: dict[str, str | int]) -> None:
    """Insert a message or change its desired content; equal content changes nothing.

    What a person waits for is due at once, also if an event asked for the same content and is waiting its turn.
    """
    tx.run(
        f"""INSERT INTO message (key, channel, conversation, root_id, thread_of, payload, digest, version, sent_version,
               attempted_version, attempted_at, post_id, ts, priority, is_progress, pending_since, due_at, changed_at,
               event_updated_at, failures, problem, is_plain, is_deleted, file_name, file_text, file_id, file_sent,
               created_at, clearance, about, fingerprint, write_number)
           VALUES (:key, :channel, '', :root_id, :thread_of, :payload, :digest, 1, 0,
               0, 0, :post_id, '', :priority, 1, :now, :now, 0,
               0, 0, '', 0, 0, :file_name, :file_text, '', :file_sent,
               :now, :clearance, :about, :fingerprint, :write_number)
           ON CONFLICT (key) DO UPDATE SET
               payload = :payload, digest = :digest, version = message.version + 1, write_number = :write_number,
               pending_since = CASE WHEN message.sent_version < message.version THEN message.pending_since
                   ELSE :now END,
               priority = CASE WHEN message.sent_version < message.version THEN max(message.priority, :priority)
                   ELSE :priority END,
               is_progress = CASE WHEN message.sent_version < message.version
                   THEN min(message.is_progress, :is_progress) ELSE :is_progress END,
               due_at = CASE WHEN :priority = 1 THEN :now
                   WHEN message.sent_version < message.version THEN min(message.due_at, {_NEXT_UPDATE})
                   ELSE {_NEXT_UPDATE} END,
               is_plain = 0,
               ts = CASE WHEN message.is_deleted = 1 AND :priority = 1 THEN '' ELSE message.ts END,
               post_id = CASE WHEN message.is_deleted = 1 AND :priority = 1 THEN :post_id ELSE message.post_id END,
               is_deleted = CASE WHEN :priority = 1 THEN 0 ELSE message.is_deleted END
           WHERE message.digest <> :digest OR message.is_deleted = 1
               OR (:priority = 1 AND message.priority < 1 AND message.sent_version < message.version)""",
        values,
    )
    tx.run(
        """UPDATE message SET clearance = :clearance, about = :about, fingerprint = :fingerprint,
               write_number = :write_number
           WHERE key = :key AND (clearance <> :clearance OR about <> :about OR fingerprint <> :fingerprint)""",
        values,
    )
    tx.run(
        """UPDATE message SET file_name = :file_name, file_text = :file_text, write_number = :write_number,
               file_sent = CASE WHEN :file_name = '' AND file_id = '' THEN 1 ELSE 0 END,
               due_at = CASE WHEN sent_version < version THEN due_at ELSE :now END
           WHERE key = :key AND file_name <> :file_name""",
        values,
    )


def is_overtaken(reads: Reads, values: dict[str, str | int]) -> bool:
    """Whether another writer has put something different into the message after the write `since`."""
    names = ("key", "since", "digest", "clearance", "fingerprint", "file_name")
    return bool(
        reads.row(
            """SELECT 1 FROM message WHERE key = :key AND write_number > :since AND (
                   digest <> :digest OR clearance <> :clearance OR fingerprint <> :fingerprint
                   OR file_name <> :file_name)""",
            {name: values[name] for name in names},
        )
    )


def by_key(reads: Reads, key: str) -> Row | None:
    """The message with this key."""
    return reads.row(f"{_RECORDS} WHERE m.key = :key", {"key": key})


def due(reads: Reads, now: int, busy: Collection[str]) -> list[Row]:
    """What to send next: of each channel that isn't busy at most one post, one update and one file, since each has its
    own rate limit; what people wait for first, then the oldest."""
    names = {f"c{n}": channel for n, channel in enumerate(busy)}
    return reads.rows(
        f"""SELECT * FROM (
              SELECT m.*, coalesce(root.ts, '') AS root_ts,
                     row_number() OVER (
                         PARTITION BY m.channel, {_CALL} ORDER BY m.priority DESC, m.pending_since, m.rowid) AS nth
              FROM message m LEFT JOIN message root ON root.key = m.thread_of
              WHERE {_SENDABLE} AND m.due_at <= :now AND m.channel NOT IN ({",".join(f":{name}" for name in names)})
            ) WHERE nth = 1 ORDER BY priority DESC, pending_since""",
        {"now": now, **names},
    )


def next_due_at(reads: Reads, now: int) -> int | None:
    """When the next message becomes due, after `now`."""
    row = reads.row(f"SELECT min(due_at) AS at FROM message WHERE {_PENDING} AND due_at > :now", {"now": now})
    return row["at"] if row else None


def waiting(reads: Reads) -> int:
    """How many messages Slack doesn't have as desired."""
    row = reads.row(f"SELECT count(*) AS n FROM message WHERE {_PENDING}")
    return row["n"] if row else 0


def begin_post(tx: Transaction, key: str, version: int, now: int, check_at: int) -> None:
    """Record a post before it is made: until its outcome is known the message may or may not be in Slack.

    `check_at`, where an earlier post was lost: when to look whether that one arrived after all; else 0.
    """
    tx.run(
        """UPDATE message SET attempted_version = :version, attempted_at = :now,
               duplicate_check_at = max(duplicate_check_at, :check_at) WHERE key = :key""",
        {"key": key, "version": version, "now": now, "check_at": check_at},
    )


def suspected_duplicates(reads: Reads, now: int) -> list[Row]:
    """Messages that may have been posted twice and are due to be checked."""
    return reads.rows(f"{_RECORDS} WHERE m.duplicate_check_at > 0 AND m.duplicate_check_at <= :now", {"now": now})


def next_duplicate_check_at(reads: Reads, now: int) -> int | None:
    """When the next message is due to be checked, after `now`."""
    row = reads.row(
        """SELECT min(duplicate_check_at) AS at FROM message
           WHERE duplicate_check_at > :now AND duplicate_check_at > 0""",
        {"now": now},
    )
    return row["at"] if row else None


def suspect_duplicate(tx: Transaction, key: str, check_at: int) -> None:
    """Check at that time whether the message was posted twice; 0: no more."""
    tx.run("UPDATE message SET duplicate_check_at = :check_at WHERE key = :key", {"key": key, "check_at": check_at})


def forget_post(tx: Transaction, key: str, before: int) -> None:
    """Note that a post has certainly failed; not one that began at `before`, which was only looked for."""
    tx.run("UPDATE message SET attempted_version = 0, attempted_at = 0 WHERE key = :key AND attempted_at <> :before",
           {"key": key, "before": before})  # fmt: skip


def mark_sent(tx: Transaction, key: str, version: int, now: int, ts: str, conversation: str) -> None:
    """Note that Slack has this version, under this `ts` in this conversation."""
    tx.run(
        """UPDATE message SET sent_version = max(sent_version, :version), attempted_version = 0, attempted_at = 0,
               ts = :ts, conversation = :conversation, changed_at = :now,
               event_updated_at = CASE WHEN priority = 1 OR sent_version = 0 THEN event_updated_at ELSE :now END,
               nonprogress_updated_at = CASE WHEN priority = 1 OR sent_version = 0 OR is_progress = 1
                   THEN nonprogress_updated_at ELSE :now END,
               is_progress = CASE WHEN version > :version THEN is_progress ELSE 1 END,
               failures = 0, problem = '',
               priority = CASE WHEN version > :version THEN priority ELSE 0 END
           WHERE key = :key""",
        {"key": key, "version": version, "now": now, "ts": ts, "conversation": conversation},
    )


def retry_at(tx: Transaction, key: str, due_at: int, problem: str) -> None:
    """Try again at `due_at`; `problem` is the sentence for `doctor`."""
    tx.run(
        "UPDATE message SET due_at = :due_at, failures = failures + 1, problem = :problem WHERE key = :key",
        {"key": key, "due_at": due_at, "problem": problem},
    )


def fall_back_to_text(tx: Transaction, key: str, problem: str) -> None:
    """Send only text until the content changes, since Slack refused the blocks."""
    tx.run(
        "UPDATE message SET is_plain = 1, attempted_version = 0, attempted_at = 0, problem = :problem WHERE key = :key",
        {"key": key, "problem": problem},
    )


def mark_deleted(tx: Transaction, key: str) -> None:
    """Note that somebody deleted the message in Slack; replies that are still to be posted are given up."""
    tx.run("UPDATE message SET is_deleted = 1, attempted_version = 0, attempted_at = 0 WHERE key = :key", {"key": key})
    tx.run("UPDATE message SET is_deleted = 1 WHERE thread_of = :key AND ts = ''", {"key": key})


def post_again(tx: Transaction, key: str, now: int) -> None:
    """Post a deleted message as a new one."""
    tx.run(
        "UPDATE message SET is_deleted = 0, ts = '', sent_version = 0, due_at = :now WHERE key = :key",
        {"key": key, "now": now},
    )


def set_conversation(tx: Transaction, key: str, conversation: str) -> None:
    tx.run("UPDATE message SET conversation = :conversation WHERE key = :key",
           {"key": key, "conversation": conversation})  # fmt: skip


def set_file(tx: Transaction, key: str, file_id: str) -> None:
    """Record the file's id in Slack before it is shown, or "" after it was deleted."""
    tx.run(
        """UPDATE message SET file_id = :file_id,
               file_sent = CASE WHEN :file_id = '' AND file_name = '' THEN 1 ELSE 0 END WHERE key = :key""",
        {"key": key, "file_id": file_id},
    )


def mark_file_sent(tx: Transaction, key: str) -> None:
    """Note that Slack shows the file, and drop its text; unless it is to be deleted meanwhile."""
    tx.run(
        """UPDATE message SET file_sent = 1, file_text = '', failures = 0, problem = ''
           WHERE key = :key AND file_name <> ''""",
        {"key": key},
    )


def problems(reads: Reads) -> list[Row]:
    """What can't be delivered, by channel and sentence, with how many messages wait and since when."""
    return reads.rows(
        f"""SELECT channel, problem, count(*) AS n, min(pending_since) AS since FROM message INDEXED BY message_open
            WHERE problem <> '' AND {_PENDING} GROUP BY channel, problem ORDER BY channel"""
    )


def retry_now(tx: Transaction, channel: str, now: int) -> None:
    """Make what waits for this channel due at once."""
    tx.run(
        "UPDATE message SET due_at = :now WHERE channel = :channel AND (sent_version < version OR file_sent = 0)",
        {"channel": channel, "now": now},
    )


def cards_of(reads: Reads, root_id: str) -> list[Row]:
    """The top-level messages of an alert or a case in every channel, without direct messages to watchers."""
    return reads.rows(
        f"""{_RECORDS} WHERE m.root_id = :root_id AND m.thread_of = '' AND m.is_deleted = 0
           AND m.key NOT LIKE 'watch:%'""",
        {"root_id": root_id},
    )


def of_root(reads: Reads, root_id: str) -> list[Row]:
    """All messages of an alert or a case that Slack still has or will get, oldest first."""
    return reads.rows(
        f"{_RECORDS} WHERE m.root_id = :root_id AND (m.is_deleted = 0 OR m.file_id <> '') ORDER BY m.rowid",
        {"root_id": root_id},
    )


def channels(reads: Reads) -> list[Row]:
    """Each channel that has messages, with the key of one; a loose index scan, since channels are few."""
    return reads.rows(
        """WITH RECURSIVE found (channel) AS (
             SELECT min(channel) FROM message
             UNION ALL
             SELECT (SELECT min(channel) FROM message WHERE channel > found.channel) FROM found
             WHERE found.channel IS NOT NULL
           )
           SELECT channel, (SELECT key FROM message WHERE channel = found.channel LIMIT 1) AS key
           FROM found WHERE channel IS NOT NULL"""
    )


def stale_roots(reads: Reads, channel: str, clearance: int, unsent_only: bool) -> list[str]:
    """Alerts and cases with a message in a channel that was rendered for another clearance than this, newest first."""
    rows = reads.rows(
        """SELECT root_id FROM message
           WHERE channel = :channel AND clearance <> :clearance AND root_id <> ''
               AND (is_deleted = 0 OR file_id <> '') AND (:unsent_only = 0 OR sent_version < version OR file_sent = 0)
           GROUP BY root_id ORDER BY max(created_at) DESC, max(rowid) DESC""",
        {"channel": channel, "clearance": clearance, "unsent_only": int(unsent_only)},
    )
    return [row["root_id"] for row in rows]


def set_clearance(tx: Transaction, key: str, clearance: int, since: int) -> bool:
    """Note that the content is right for this clearance too; False if it was changed after the write `since`."""
    sql = "UPDATE message SET clearance = :clearance WHERE key = :key AND write_number <= :since"
    return bool(tx.run(sql, {"key": key, "clearance": clearance, "since": since}))


def invalidate_clearances(tx: Transaction) -> None:
    """Check each message again before it is sent: TLP levels may have changed unnoticed."""
    tx.run("UPDATE message SET clearance = :unknown WHERE clearance <> :unknown", {"unknown": UNKNOWN})


def roots_in(reads: Reads, channel: str, limit: int) -> list[Row]:
    """Alerts and cases with a card in a channel, newest first."""
    return reads.rows(
        """SELECT root_id FROM message WHERE channel = :channel AND thread_of = '' AND root_id <> '' AND is_deleted = 0
           GROUP BY root_id ORDER BY max(created_at) DESC, max(rowid) DESC LIMIT :limit""",
        {"channel": channel, "limit": limit},
    )


def recent_roots(reads: Reads, since: int) -> list[Row]:
    """Alerts and cases with a card that was posted or updated since then (ms)."""
    return reads.rows(
        """SELECT DISTINCT root_id FROM message
           WHERE root_id <> '' AND thread_of = '' AND is_deleted = 0 AND max(created_at, changed_at) >= :since""",
        {"since": since},
    )


def by_ts(reads: Reads, channel: str, ts: str) -> Row | None:
    """Our message with this timestamp."""
    return reads.row(
        f"{_RECORDS} WHERE (m.channel = :channel OR m.conversation = :channel) AND m.ts = :ts",
        {"channel": channel, "ts": ts},
    )
