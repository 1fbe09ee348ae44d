"""The SQL of the message table."""

# ruff: noqa: S608  # every fragment is a constant of this module or a made-up parameter name, every value is bound

from bot.clearance import SHARED
from bot.outbox.models import FIRST_ALERT, FOR_PERSON, IN_BULK, LAST_ALERT, NEWS, OTHER, WITHHOLDING, MessageRecord
from core.common.database import Params, Reads, Row, Transaction

_COLUMNS = (
    "m.*, coalesce(root.ts, '') AS root_ts, coalesce(f.name, '') AS file_name,"
    " coalesce(f.text, '') AS file_text, coalesce(f.slack_id, '') AS file_id, f.status AS file_status,"
    " coalesce(f.failures, 0) AS file_failures"
)
PENDING = "status IN ('unsent', 'posting', 'outdated')"
"""Slack lacks the desired content. Word for word the condition of the indexes `message_pending` and `message_next`."""
# Kinds of messages about a run, by their keys.
ABOUT_A_RUN = ("approval", "ask", "end", "extension", "measure", "moved", "remind", "told", "undo", "undone")
UNKNOWN = -3  # the clearance of a message that must be checked before it is sent

# What Slack shows may be more than the channel or person may see now, unless only their clearance rose.
_MUST_GO = (
    "message.status <> 'unsent' AND message.fingerprint <> :fingerprint"
    f" AND (message.clearance < {SHARED} OR :clearance <= message.clearance)"
)
_NEXT_RANK = f"""min(CASE WHEN {_MUST_GO} THEN {WITHHOLDING} ELSE {IN_BULK} END,
    CASE message.status WHEN 'shown' THEN :rank WHEN 'unsent' THEN min(message.rank, :post_rank)
        ELSE min(message.rank, :rank) END)"""
# Events update a message at most once in `update_every_ms`; progress doesn't hold up what is more than that.
# A clock that was set back holds up nothing for longer. `progress_ms`: how long progress waits for what follows.
_NEXT_UPDATE = (
    "max(:now + :progress_ms, min(:now, CASE WHEN :is_progress = 1 THEN message.event_updated_at"
    " ELSE message.nonprogress_updated_at END) + :update_every_ms)"
)


def selected(messages: str) -> str:
    """The beginning of a query for records; `messages` are tables with the message as `m`, perhaps its file as `f`."""
    file = "" if " f " in messages else " LEFT JOIN file f ON f.message_key = m.key"
    return f"SELECT {_COLUMNS} FROM {messages} LEFT JOIN message root ON root.key = m.thread_of{file}"


_RECORDS = selected("message m")
IS_STALE = "(m.channel = :channel AND m.clearance < :clearance OR m.channel = :channel AND m.clearance > :clearance)"
"""As `<>`, in two ranges of the index."""


# --- transitions (bot/docs/delivery.md#states-of-a-message) ---------------------------------------------------------


def upsert(tx: Transaction, values: Params) -> None:
    """Insert a message or change its desired content; equal content changes nothing. A deleted one stays deleted."""
    tx.run(
        f"""INSERT INTO message (key, channel, conversation, root_id, thread_of, payload, digest, status, version,
               attempted_version, attempted_at, post_id, ts, rank, is_progress, pending_since, due_at, changed_at,
               event_updated_at, failures, problem, is_plain, created_at, clearance, about, fingerprint, counted)
           VALUES (:key, :channel, '', :root_id, :thread_of, :payload, :digest, 'unsent', 1,
               0, 0, :post_id, '', :post_rank, 1, :now, :now, 0,
               0, 0, '', 0, :now, :clearance, :about, :fingerprint, :counted)
           ON CONFLICT (key) DO UPDATE SET
               payload = :payload, digest = :digest, version = message.version + 1, is_plain = 0, counted = :counted,
               status = CASE message.status WHEN 'shown' THEN 'outdated' ELSE message.status END,
               pending_since = CASE message.status WHEN 'shown' THEN :now ELSE message.pending_since END,
               rank = {_NEXT_RANK},
               is_progress = CASE message.status WHEN 'shown' THEN :is_progress
                   ELSE min(message.is_progress, :is_progress) END,
               due_at = CASE WHEN {_NEXT_RANK} <= {WITHHOLDING} THEN :now
                   WHEN message.status = 'shown' THEN {_NEXT_UPDATE} ELSE min(message.due_at, {_NEXT_UPDATE}) END
           WHERE message.digest <> :digest""",
        values,
    )
    tx.run(
        """UPDATE message SET clearance = :clearance, about = :about, fingerprint = :fingerprint,
               root_id = :root_id
           WHERE key = :key AND (clearance <> :clearance OR about <> :about OR fingerprint <> :fingerprint
               OR root_id <> :root_id)""",
        values,
    )


def forget_unsent(tx: Transaction, key: str) -> bool:
    """Delete a message unless Slack may have it; whether Slack has none."""
    row = tx.row("SELECT status, ts FROM message WHERE key = :key", {"key": key})
    if row is not None and (row["status"] != "unsent" or row["ts"]):
        return False
    tx.run("DELETE FROM message WHERE key = :key", {"key": key})
    tx.run("DELETE FROM file WHERE message_key = :key", {"key": key})
    return True


def prioritize(tx: Transaction, root_id: str, now: int) -> None:
    """Send what is pending of an alert, a case or a bulk at once, since a person waits for it; repost deleted cards.

    A bulk may have many direct messages, so these wait for their turn.
    """
    tx.run(
        f"""UPDATE message SET rank = {FOR_PERSON}, due_at = :now
            WHERE root_id = :root_id AND rank <> {FOR_PERSON} AND {PENDING}
                AND NOT (key LIKE 'bulk%' AND substr(channel, 1, 1) IN ('U', 'W'))""",
        {"root_id": root_id, "now": now},
    )
    deleted = tx.rows(
        """SELECT key FROM message WHERE root_id = :root_id AND status = 'deleted' AND thread_of = ''
               AND substr(channel, 1, 1) NOT IN ('U', 'W')""",
        {"root_id": root_id},
    )
    for row in deleted:
        post_again(tx, row["key"], now)


def post_again(tx: Transaction, key: str, now: int) -> None:
    """Post a deleted message as a new one, since a person waits for it."""
    tx.run(
        f"""UPDATE message SET status = 'unsent', ts = '', rank = {FOR_PERSON}, pending_since = :now, due_at = :now,
               failures = 0, problem = '' WHERE key = :key AND status = 'deleted'""",
        {"key": key, "now": now},
    )


def begin_post(tx: Transaction, message: MessageRecord, now: int, check_at: int = 0) -> bool:
    """Record a post before it is made: until its outcome is known the message may or may not be in Slack.

    `check_at`, where an earlier post was lost: when to look whether that one arrived after all. False if another
    replica has begun one since the message was read, as one that was stopped for a while still believes to lead.
    """
    return bool(
        tx.run(
            """UPDATE message SET status = 'posting', attempted_version = :version, attempted_at = :now,
                   duplicate_check_at = max(duplicate_check_at, :check_at)
               WHERE key = :key AND status = :status AND attempted_at = :attempted_at AND post_id = :post_id""",
            {**vars(message), "now": now, "check_at": check_at},
        )
    )


def post_failed(tx: Transaction, key: str, began_at: int) -> None:
    """Note that the post that began then has certainly failed; 0: none began, as it was only looked for."""
    tx.run(
        """UPDATE message SET status = 'unsent', attempted_version = 0, attempted_at = 0
           WHERE key = :key AND status = 'posting' AND attempted_at = :began_at AND attempted_at > 0""",
        {"key": key, "began_at": began_at},
    )


def mark_sent(
    tx: Transaction, message: MessageRecord, version: int, now: int, ts: str, conversation: str, check_at: int
) -> None:
    """Note that Slack has this version, under this `ts` in this conversation.

    If another replica has noted another post since `message` was read, that one stays, since its thread may have
    replies; `check_at` is when to look for this one as a duplicate.
    """
    values: dict[str, str | int] = {"key": message.key, "ts": ts}
    is_noted = tx.run(
        f"""UPDATE message SET status = CASE WHEN version > :version THEN 'outdated' ELSE 'shown' END,
               attempted_version = 0, attempted_at = 0, ts = :ts, conversation = :conversation, changed_at = :now,
               event_updated_at = CASE WHEN rank = {FOR_PERSON} OR ts = '' THEN event_updated_at ELSE :now END,
               nonprogress_updated_at = CASE WHEN rank = {FOR_PERSON} OR ts = '' OR is_progress = 1
                   THEN nonprogress_updated_at ELSE :now END,
               is_progress = CASE WHEN version > :version THEN is_progress ELSE 1 END,
               failures = 0, problem = '',
               rank = CASE WHEN version = :version THEN {OTHER} WHEN rank BETWEEN {FIRST_ALERT} AND {LAST_ALERT}
                   THEN {NEWS} ELSE rank END
           WHERE key = :key AND status <> 'deleted' AND ts = :before""",
        {**values, "version": version, "now": now, "conversation": conversation, "before": message.ts},
    )
    if not is_noted:
        tx.run(
            """UPDATE message SET duplicate_check_at = max(duplicate_check_at, :check_at)
               WHERE key = :key AND status <> 'deleted' AND ts NOT IN ('', :ts)""",
            {**values, "check_at": check_at},
        )


def mark_deleted(tx: Transaction, message: MessageRecord, now: int) -> None:
    """Note that somebody deleted the message in Slack, unless another replica has posted it again since.

    A card for which a person waits is posted again, and its replies follow; else events leave it deleted, and replies
    that are still to be posted are given up. A reply that may have arrived is looked for first.
    """
    values = {"key": message.key, "ts": message.ts}
    is_noted = tx.run(
        """UPDATE message SET status = 'deleted', attempted_version = 0, attempted_at = 0,
               duplicate_check_at = CASE ts WHEN '' THEN 0 ELSE duplicate_check_at END
           WHERE key = :key AND ts = :ts""",
        values,
    )
    row = tx.row("SELECT rank FROM message WHERE key = :key", values)
    if is_noted and row and row["rank"] == FOR_PERSON and not message.thread_of:
        post_again(tx, message.key, now)
    elif is_noted:
        tx.run(
            "UPDATE message SET status = 'deleted' WHERE thread_of = :key AND thread_of <> '' AND status = 'unsent'",
            values,
        )


def retry_at(tx: Transaction, key: str, due_at: int, problem: str) -> None:
    """Try again at `due_at`; `problem` is the sentence for `doctor`."""
    tx.run(
        "UPDATE message SET due_at = :due_at, failures = failures + 1, problem = :problem WHERE key = :key",
        {"key": key, "due_at": due_at, "problem": problem},
    )


def retry_channel_at(tx: Transaction, channel: str, now: int, due_at: int, problem: str) -> None:
    """Try all that is due in this channel again at `due_at`, since Slack refuses the channel."""
    tx.run(
        f"""UPDATE message SET due_at = :due_at, problem = :problem
            WHERE channel = :channel AND {PENDING} AND due_at <= :now""",
        {"channel": channel, "now": now, "due_at": due_at, "problem": problem},
    )


def fall_back_to_text(tx: Transaction, key: str, problem: str) -> None:
    """Send only text until the content changes, since Slack refused the blocks."""
    tx.run("UPDATE message SET is_plain = 1, problem = :problem WHERE key = :key", {"key": key, "problem": problem})


def set_conversation(tx: Transaction, key: str, conversation: str) -> None:
    """Note the channel id of the direct messages to a person."""
    tx.run(
        "UPDATE message SET conversation = :conversation WHERE key = :key", {"key": key, "conversation": conversation}
    )


def retry_now(tx: Transaction, channel: str, now: int) -> None:
    """Make what is pending for this channel due at once."""
    values = {"channel": channel, "now": now}
    tx.run(f"UPDATE message SET due_at = :now WHERE channel = :channel AND {PENDING}", values)
    tx.run(
        """UPDATE file SET due_at = :now WHERE status <> 'shown'
               AND EXISTS (SELECT 1 FROM message WHERE key = message_key AND channel = :channel)""",
        values,
    )


def stop_waiting(tx: Transaction, now: int, check_at: int) -> None:
    """Make all that is pending due, and check for duplicates at `check_at` at the latest."""
    values = {"now": now, "check_at": check_at}
    tx.run(f"UPDATE message SET due_at = :now WHERE {PENDING} AND due_at > :now", values)
    tx.run("UPDATE file SET due_at = :now WHERE status <> 'shown' AND due_at > :now", values)
    tx.run(
        """UPDATE message SET duplicate_check_at = :check_at
           WHERE duplicate_check_at > 0 AND duplicate_check_at > :check_at""",
        values,
    )


def suspect_duplicate(tx: Transaction, key: str, check_at: int) -> None:
    """Check at that time whether the message was posted twice; 0: no more."""
    tx.run("UPDATE message SET duplicate_check_at = :check_at WHERE key = :key", {"key": key, "check_at": check_at})


def set_clearance(tx: Transaction, key: str, clearance: int) -> None:
    """Note that the content is right for this clearance too."""
    tx.run("UPDATE message SET clearance = :clearance WHERE key = :key", {"key": key, "clearance": clearance})


def invalidate_clearances(tx: Transaction) -> None:
    """Check each message about an alert or a case again before it is sent: TLP levels may have changed unnoticed."""
    sql = "UPDATE message SET clearance = :unknown WHERE clearance <> :unknown AND root_id <> ''"
    tx.run(sql, {"unknown": UNKNOWN})


# --- reading --------------------------------------------------------------------------------------------------------


def by_key(reads: Reads, key: str) -> Row | None:
    return reads.row(f"{_RECORDS} WHERE m.key = :key", {"key": key})


def next_due_at(reads: Reads, now: int) -> int | None:
    """When the next message or file becomes due, or a check for a duplicate, after `now`."""
    return reads.value(
        f"""SELECT min(at) AS at FROM (
              SELECT min(due_at) AS at FROM message WHERE {PENDING} AND due_at > :now
              UNION ALL SELECT min(due_at) FROM file WHERE status <> 'shown' AND due_at > :now
              UNION ALL SELECT min(duplicate_check_at) FROM message
                WHERE duplicate_check_at > :now AND duplicate_check_at > 0) AS found""",
        {"now": now},
    )


def waiting(reads: Reads) -> int:
    """How many messages and files Slack doesn't have as desired."""
    return reads.number(
        f"""SELECT (SELECT count(*) FROM message WHERE {PENDING})
               + (SELECT count(*) FROM file WHERE status <> 'shown') AS n"""
    )


def suspected_duplicates(reads: Reads, now: int) -> list[Row]:
    """Messages that may have been posted twice and are due to be checked."""
    return reads.rows(f"{_RECORDS} WHERE m.duplicate_check_at > 0 AND m.duplicate_check_at <= :now", {"now": now})


def problems(reads: Reads) -> list[Row]:
    """What can't be delivered, by channel and sentence, with how many messages wait."""
    return reads.rows(
        f"""SELECT channel, problem, count(*) AS n FROM (
              SELECT channel, problem FROM message INDEXED BY message_pending
              WHERE problem <> '' AND {PENDING}
              UNION ALL
              SELECT m.channel, f.problem FROM file f JOIN message m ON m.key = f.message_key
              WHERE f.problem <> '' AND f.status <> 'shown') AS found
            GROUP BY channel, problem ORDER BY channel"""
    )


def cards_of(reads: Reads, root_id: str) -> list[Row]:
    """The top-level messages of an alert or a case in every channel, without direct messages."""
    return reads.rows(
        f"""{_RECORDS} WHERE m.root_id = :root_id AND m.thread_of = '' AND m.status <> 'deleted'
           AND substr(m.channel, 1, 1) NOT IN ('U', 'W')""",
        {"root_id": root_id},
    )


def of_root(reads: Reads, root_id: str) -> list[Row]:
    """All messages of an alert or a case that Slack still has or will get, oldest first."""
    return reads.rows(
        f"{_RECORDS} WHERE m.root_id = :root_id AND (m.status <> 'deleted' OR f.slack_id <> '') ORDER BY m.number",
        {"root_id": root_id},
    )


def named(reads: Reads, prefix: str) -> list[Row]:
    """All messages whose key begins with this, which ends with a colon."""
    return reads.rows(f"{_RECORDS} WHERE m.key >= :first AND m.key < :end", {"first": prefix, "end": f"{prefix[:-1]};"})


def of_run(reads: Reads, action_id: str) -> list[Row]:
    """Likewise about a run, those too that its alert had before the run moved to a case."""
    found = [row for kind in ABOUT_A_RUN for row in named(reads, f"{kind}:{action_id}:")]
    return sorted((row for row in found if row["status"] != "deleted" or row["file_id"]), key=lambda row: row["number"])


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
    return reads.column(
        f"""SELECT m.root_id FROM message m LEFT JOIN file f ON f.message_key = m.key
           WHERE {IS_STALE} AND m.root_id <> ''
               AND (m.status <> 'deleted' OR f.slack_id <> '')
               AND (:unsent_only = 0 OR m.{PENDING} OR f.status <> 'shown')
           GROUP BY m.root_id ORDER BY max(m.created_at) DESC, max(m.number) DESC""",
        {"channel": channel, "clearance": clearance, "unsent_only": int(unsent_only)},
    )


# Alerts and cases that have a card in a channel, and alerts that stand there in a group; newest first. After a storm
# there are many.
ALERTS_IN = """SELECT root_id FROM (
      SELECT * FROM (SELECT root_id FROM message INDEXED BY message_card
        WHERE channel = :channel AND thread_of = '' AND root_id <> '' AND status <> 'deleted'
        ORDER BY number DESC LIMIT :limit) AS cards UNION
      SELECT * FROM (SELECT root_id FROM channel_alert WHERE channel = :channel ORDER BY at DESC LIMIT :limit) AS shown
    ) AS found ORDER BY length(root_id) DESC, root_id DESC LIMIT :limit"""


def recent_roots(reads: Reads, since: int) -> list[str]:
    """Alerts and cases with a card that was posted or updated since then (ms)."""
    return reads.column(
        """SELECT DISTINCT root_id FROM message
           WHERE root_id <> '' AND thread_of = '' AND status <> 'deleted' AND max(created_at, changed_at) >= :since""",
        {"since": since},
    )


def by_ts(reads: Reads, channel: str, ts: str) -> Row | None:
    """Our message with this timestamp."""
    return reads.row(
        f"{_RECORDS} WHERE (m.channel = :channel OR m.conversation = :channel) AND m.ts = :ts",
        {"channel": channel, "ts": ts},
    )
