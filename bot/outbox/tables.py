"""Every SQL text of the bot's database: messages, buttons, inbox, state, leases, watches."""

# ruff: noqa: S608  # every fragment is a constant of this module or a made-up parameter name, every value is bound

from collections.abc import Collection, Sequence

from core.common.database.sqlite import Reads, Row, Transaction

# --- messages -------------------------------------------------------------------------------------------------------

_SHOWN = "SELECT m.*, coalesce(root.ts, '') AS root_ts FROM message m LEFT JOIN message root ON root.key = m.thread_of"
# A file that must go is taken away also where its message was deleted: it stands in a message of its own.
# What stands before the first AND is that of the index `message_open`, in its words.
_LEFT = "(sent < wanted OR file_sent = 0) AND (gone = 0 OR file_sent = 0 AND file_name = '')"
_OPEN = (
    "(m.sent < m.wanted OR m.file_sent = 0) AND"
    " (m.gone = 0 AND (m.thread_of = '' OR root.ts <> '') OR m.file_sent = 0 AND m.file_name = '')"
)
UNKNOWN = -1  # the clearance of what must be looked at before it leaves
_KIND = "CASE WHEN m.sent >= m.wanted OR m.gone = 1 THEN 'file' WHEN m.ts = '' THEN 'post' ELSE 'update' END"

_BUNDLED = "max(:soon, CASE WHEN :news = 1 THEN message.news_at ELSE message.machine_at END + :bundle_ms)"


def want(tx: Transaction, values: dict[str, str | int]) -> None:
    """Insert or change the desired state; the same state as before changes nothing, a person's is due at once
    (also where news of a machine wanted the same, and waits)."""
    tx.run(
        f"""INSERT INTO message (key, channel, conversation, subject, thread_of, payload, digest, wanted, sent, tried,
               tried_at, mark, ts, by_person, wanted_at, due_at, changed_at, machine_at, failures, problem, plain, gone,
               file_name, file_text, file_id, file_sent, created_at, clearance, about, sight, written)
           VALUES (:key, :channel, '', :subject, :thread_of, :payload, :digest, 1, 0, 0,
               0, :mark, '', :by_person, :now, :now, 0, 0, 0, '', 0, 0,
               :file_name, :file_text, '', :file_sent, :now, :clearance, :about, :sight, :written)
           ON CONFLICT (key) DO UPDATE SET
               payload = :payload, digest = :digest, wanted = message.wanted + 1, written = :written,
               wanted_at = CASE WHEN message.sent < message.wanted THEN message.wanted_at ELSE :now END,
               by_person = CASE WHEN message.sent < message.wanted THEN max(message.by_person, :by_person)
                   ELSE :by_person END,
               news = CASE WHEN message.sent < message.wanted THEN max(message.news, :news) ELSE :news END,
               due_at = CASE WHEN :by_person = 1 THEN :now
                   WHEN message.sent < message.wanted THEN min(message.due_at, {_BUNDLED})
                   ELSE {_BUNDLED} END,
               plain = 0,
               ts = CASE WHEN message.gone = 1 AND :by_person = 1 THEN '' ELSE message.ts END,
               mark = CASE WHEN message.gone = 1 AND :by_person = 1 THEN :mark ELSE message.mark END,
               gone = CASE WHEN :by_person = 1 THEN 0 ELSE message.gone END
           WHERE message.digest <> :digest OR message.gone = 1
               OR (:by_person = 1 AND message.by_person < 1 AND message.sent < message.wanted)""",
        values,
    )
    tx.run(
        """UPDATE message SET clearance = :clearance, about = :about, sight = :sight, written = :written
           WHERE key = :key AND (clearance <> :clearance OR about <> :about OR sight <> :sight)""",
        values,
    )
    tx.run(
        """UPDATE message SET file_name = :file_name, file_text = :file_text, written = :written,
               file_sent = CASE WHEN :file_name = '' AND file_id = '' THEN 1 ELSE 0 END,
               due_at = CASE WHEN sent < wanted THEN due_at ELSE :now END
           WHERE key = :key AND file_name <> :file_name""",
        values,
    )


def is_overtaken(reads: Reads, values: dict[str, str | int]) -> bool:
    """Whether another wrote something else after the writing `since`."""
    names = ("key", "since", "digest", "clearance", "sight", "file_name")
    return bool(
        reads.row(
            """SELECT 1 FROM message WHERE key = :key AND written > :since AND (
                   digest <> :digest OR clearance <> :clearance OR sight <> :sight OR file_name <> :file_name)""",
            {name: values[name] for name in names},
        )
    )


def by_key(reads: Reads, key: str) -> Row | None:
    return reads.row(f"{_SHOWN} WHERE m.key = :key", {"key": key})


def due(reads: Reads, now: int, busy: Collection[str]) -> list[Row]:
    """What to send next: of each channel that isn't busy at most one post, one update and one file, since each has a
    pace of its own; a person's first, then the longest waiting."""
    names = {f"c{n}": channel for n, channel in enumerate(busy)}
    return reads.rows(
        f"""SELECT * FROM (
              SELECT m.*, coalesce(root.ts, '') AS root_ts,
                     row_number() OVER (
                         PARTITION BY m.channel, {_KIND} ORDER BY m.by_person DESC, m.wanted_at, m.rowid) AS nth
              FROM message m LEFT JOIN message root ON root.key = m.thread_of
              WHERE {_OPEN} AND m.due_at <= :now AND m.channel NOT IN ({",".join(f":{name}" for name in names)})
            ) WHERE nth = 1 ORDER BY by_person DESC, wanted_at""",
        {"now": now, **names},
    )


def next_due_at(reads: Reads, now: int) -> int | None:
    """When the next message becomes due, after `now`."""
    row = reads.row(
        f"SELECT min(due_at) AS at FROM message WHERE {_LEFT} AND due_at > :now",
        {"now": now},
    )
    return row["at"] if row else None


def waiting(reads: Reads) -> int:
    """How many messages are not yet as they shall be."""
    row = reads.row(f"SELECT count(*) AS n FROM message WHERE {_LEFT}")
    return row["n"] if row else 0


def begin(tx: Transaction, key: str, wanted: int, now: int, doubt_at: int) -> None:
    """An attempt to post begins: until its end is known the message may or may not stand in Slack.

    `doubt_at`, for one after an attempt that left nothing: when to look whether that arrived after all; else 0.
    """
    tx.run(
        "UPDATE message SET tried = :wanted, tried_at = :now, doubt_at = max(doubt_at, :doubt_at) WHERE key = :key",
        {"key": key, "wanted": wanted, "now": now, "doubt_at": doubt_at},
    )


def doubtful(reads: Reads, now: int) -> list[Row]:
    """Messages that may stand twice and whose time it is to look."""
    return reads.rows(f"{_SHOWN} WHERE m.doubt_at > 0 AND m.doubt_at <= :now", {"now": now})


def next_doubt_at(reads: Reads, now: int) -> int | None:
    """When the next one's time comes, after `now`."""
    row = reads.row("SELECT min(doubt_at) AS at FROM message WHERE doubt_at > :now AND doubt_at > 0", {"now": now})
    return row["at"] if row else None


def set_doubt(tx: Transaction, key: str, doubt_at: int) -> None:
    tx.run("UPDATE message SET doubt_at = :doubt_at WHERE key = :key", {"key": key, "doubt_at": doubt_at})


def never_begun(tx: Transaction, key: str, before: int) -> None:
    """The attempt certainly did nothing; one that began at `before`, and was only looked for, perhaps did."""
    tx.run("UPDATE message SET tried = 0, tried_at = 0 WHERE key = :key AND tried_at <> :before",
           {"key": key, "before": before})  # fmt: skip


def done(tx: Transaction, key: str, number: int, now: int, ts: str, conversation: str) -> None:
    """Slack has state `number`; its time and place are known."""
    tx.run(
        """UPDATE message SET sent = max(sent, :number), tried = 0, tried_at = 0, ts = :ts,
               conversation = :conversation, changed_at = :now,
               machine_at = CASE WHEN by_person = 1 OR sent = 0 THEN machine_at ELSE :now END,
               news_at = CASE WHEN by_person = 1 OR sent = 0 OR news = 0 THEN news_at ELSE :now END,
               news = CASE WHEN wanted > :number THEN news ELSE 0 END,
               failures = 0, problem = '',
               by_person = CASE WHEN wanted > :number THEN by_person ELSE 0 END
           WHERE key = :key""",
        {"key": key, "number": number, "now": now, "ts": ts, "conversation": conversation},
    )


def later(tx: Transaction, key: str, due_at: int, problem: str) -> None:
    """Try again at `due_at`; `problem` is the sentence for `doctor`."""
    tx.run(
        "UPDATE message SET due_at = :due_at, failures = failures + 1, problem = :problem WHERE key = :key",
        {"key": key, "due_at": due_at, "problem": problem},
    )


def make_plain(tx: Transaction, key: str, problem: str) -> None:
    tx.run(
        "UPDATE message SET plain = 1, tried = 0, tried_at = 0, problem = :problem WHERE key = :key",
        {"key": key, "problem": problem},
    )


def set_gone(tx: Transaction, key: str) -> None:
    """Somebody deleted it in Slack; its replies are given up too."""
    tx.run("UPDATE message SET gone = 1, tried = 0, tried_at = 0 WHERE key = :key", {"key": key})
    tx.run("UPDATE message SET gone = 1 WHERE thread_of = :key AND ts = ''", {"key": key})


def anew(tx: Transaction, key: str, now: int) -> None:
    """Post it again, as a new message."""
    tx.run("UPDATE message SET gone = 0, ts = '', sent = 0, due_at = :now WHERE key = :key", {"key": key, "now": now})


def set_conversation(tx: Transaction, key: str, conversation: str) -> None:
    tx.run("UPDATE message SET conversation = :conversation WHERE key = :key",
           {"key": key, "conversation": conversation})  # fmt: skip


def set_file(tx: Transaction, key: str, file_id: str) -> None:
    """The file's id in Slack, where it is about to stand, or "" since it does not; what shall be is done after."""
    tx.run(
        """UPDATE message SET file_id = :file_id,
               file_sent = CASE WHEN :file_id = '' AND file_name = '' THEN 1 ELSE 0 END WHERE key = :key""",
        {"key": key, "file_id": file_id},
    )


def file_done(tx: Transaction, key: str) -> None:
    """The file stands in Slack, and its text need not be kept; unless it was to go meanwhile."""
    tx.run(
        """UPDATE message SET file_sent = 1, file_text = '', failures = 0, problem = ''
           WHERE key = :key AND file_name <> ''""",
        {"key": key},
    )


def problems(reads: Reads) -> list[Row]:
    """What can't be delivered, by channel and sentence, with how many messages wait for it."""
    return reads.rows(
        f"""SELECT channel, problem, count(*) AS n, min(wanted_at) AS since FROM message INDEXED BY message_open
            WHERE problem <> '' AND {_LEFT} GROUP BY channel, problem ORDER BY channel"""
    )


def hurry(tx: Transaction, channel: str, now: int) -> int:
    """What waits for this channel is due now: the trouble was mended."""
    return tx.run(
        "UPDATE message SET due_at = :now WHERE channel = :channel AND (sent < wanted OR file_sent = 0)",
        {"channel": channel, "now": now},
    )


def cards_of(reads: Reads, subject: str) -> list[Row]:
    """The top-level messages of an alert or a case, in every channel; not what a person was told of them."""
    return reads.rows(
        f"""{_SHOWN} WHERE m.subject = :subject AND m.thread_of = '' AND m.gone = 0 AND m.key NOT LIKE 'watch:%'""",
        {"subject": subject},
    )


def of_subject(reads: Reads, subject: str) -> list[Row]:
    """All that Slack was told of an alert or a case and still has, oldest first."""
    return reads.rows(
        f"{_SHOWN} WHERE m.subject = :subject AND (m.gone = 0 OR m.file_id <> '') ORDER BY m.rowid",
        {"subject": subject},
    )


def channels(reads: Reads) -> list[Row]:
    """Where messages stand, or shall, with the key of one of them; steps from channel to channel, as there are few."""
    return reads.rows(
        """WITH RECURSIVE place (channel) AS (
             SELECT min(channel) FROM message
             UNION ALL
             SELECT (SELECT min(channel) FROM message WHERE channel > place.channel) FROM place
             WHERE place.channel IS NOT NULL
           )
           SELECT channel, (SELECT key FROM message WHERE channel = place.channel LIMIT 1) AS key
           FROM place WHERE channel IS NOT NULL"""
    )


def made_for_another(reads: Reads, channel: str, clearance: int, unsent_only: bool) -> list[str]:
    """Alerts and cases of which something in a channel was made for another clearance than this, newest first."""
    rows = reads.rows(
        """SELECT subject FROM message
           WHERE channel = :channel AND clearance <> :clearance AND subject <> ''
               AND (gone = 0 OR file_id <> '') AND (:unsent_only = 0 OR sent < wanted OR file_sent = 0)
           GROUP BY subject ORDER BY max(created_at) DESC, max(rowid) DESC""",
        {"channel": channel, "clearance": clearance, "unsent_only": int(unsent_only)},
    )
    return [row["subject"] for row in rows]


def set_clearance(tx: Transaction, key: str, clearance: int, since: int) -> bool:
    """It shows to this clearance what it shows anyway; False when somebody changed it after the writing `since`."""
    sql = "UPDATE message SET clearance = :clearance WHERE key = :key AND written <= :since"
    return bool(tx.run(sql, {"key": key, "clearance": clearance, "since": since}))


def doubt_all(tx: Transaction) -> None:
    """Levels may have changed unheard: each message is to be looked at again, before it leaves."""
    tx.run("UPDATE message SET clearance = :unknown WHERE clearance <> :unknown", {"unknown": UNKNOWN})


def subjects(reads: Reads, channel: str, limit: int) -> list[Row]:
    """Whose cards stand in a channel, newest first."""
    return reads.rows(
        """SELECT subject FROM message WHERE channel = :channel AND thread_of = '' AND subject <> '' AND gone = 0
           GROUP BY subject ORDER BY max(created_at) DESC, max(rowid) DESC LIMIT :limit""",
        {"channel": channel, "limit": limit},
    )


def recent_subjects(reads: Reads, since: int) -> list[Row]:
    """Whose cards were posted or repainted after `since`."""
    return reads.rows(
        """SELECT DISTINCT subject FROM message
           WHERE subject <> '' AND thread_of = '' AND gone = 0 AND max(created_at, changed_at) >= :since""",
        {"since": since},
    )


def in_slack(reads: Reads, channel: str, ts: str) -> Row | None:
    """The message of ours with this timestamp."""
    return reads.row(
        f"{_SHOWN} WHERE (m.channel = :channel OR m.conversation = :channel) AND m.ts = :ts",
        {"channel": channel, "ts": ts},
    )


# --- buttons --------------------------------------------------------------------------------------------------------


def buttons_of(reads: Reads, channel: str, message_key: str, after: int) -> list[Row]:
    """The buttons of a message that live beyond `after`."""
    return reads.rows(
        "SELECT * FROM button WHERE channel = :channel AND message_key = :message_key AND expires_at > :after",
        {"channel": channel, "message_key": message_key, "after": after},
    )


def add_buttons(tx: Transaction, rows: Sequence[dict[str, str | int]]) -> None:
    for values in rows:
        tx.run(
            """INSERT INTO button (token, channel, message_key, what, object_id, argument, expires_at)
               VALUES (:token, :channel, :message_key, :what, :object_id, :argument, :expires_at)""",
            values,
        )


def last_until(tx: Transaction, token: str, until: int) -> None:
    """This button expires then at the latest."""
    tx.run("UPDATE button SET expires_at = min(expires_at, :until) WHERE token = :token",
           {"token": token, "until": until})  # fmt: skip


def button(reads: Reads, token: str) -> Row | None:
    return reads.row("SELECT * FROM button WHERE token = :token", {"token": token})


# --- inbox ----------------------------------------------------------------------------------------------------------


def accept(tx: Transaction, key: str, payload: str, now: int, owner: str, until: int) -> bool:
    """Write an acknowledged click down; False when it came before."""
    return bool(
        tx.run(
            """INSERT INTO inbox (key, payload, at, owner, owned_until, done_at)
               VALUES (:key, :payload, :now, :owner, :until, 0) ON CONFLICT (key) DO NOTHING""",
            {"key": key, "payload": payload, "now": now, "owner": owner, "until": until},
        )
    )


def settle(tx: Transaction, key: str, now: int) -> None:
    """The click was carried out; what it held is forgotten, its key is kept against a repeat."""
    tx.run("UPDATE inbox SET done_at = :now, payload = '' WHERE key = :key", {"key": key, "now": now})


def unsettled(reads: Reads) -> list[Row]:
    return reads.rows("SELECT * FROM inbox WHERE done_at = 0 ORDER BY at")


def take_over(tx: Transaction, key: str, before: str, owner: str, until: int) -> bool:
    """Make a click ours whose owner was `before`; False when somebody was quicker."""
    return bool(
        tx.run(
            """UPDATE inbox SET owner = :owner, owned_until = :until
               WHERE key = :key AND owner = :before AND done_at = 0""",
            {"key": key, "before": before, "owner": owner, "until": until},
        )
    )


# --- state, leases, watches -----------------------------------------------------------------------------------------


def value(reads: Reads, name: str) -> str | None:
    row = reads.row("SELECT value FROM state WHERE name = :name", {"name": name})
    return row["value"] if row else None


def touch(tx: Transaction) -> None:
    """A write that means nothing and shows that the store can be written."""
    tx.run("INSERT INTO state (name, value) VALUES ('probe', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1")


def values(reads: Reads, names: Sequence[str]) -> dict[str, str]:
    """Those of these values that are there, as of one moment."""
    given = {f"n{n}": name for n, name in enumerate(names)}
    rows = reads.rows(f"SELECT name, value FROM state WHERE name IN ({','.join(f':{n}' for n in given)})", given)
    return {row["name"]: row["value"] for row in rows}


def set_value(tx: Transaction, name: str, text: str) -> None:
    tx.run(
        "INSERT INTO state (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = :value",
        {"name": name, "value": text},
    )


def drop_value(tx: Transaction, name: str) -> None:
    tx.run("DELETE FROM state WHERE name = :name", {"name": name})


def forget_messages(tx: Transaction) -> int:
    """Forget all that names objects of core; how many messages that were. Who watches a responder still does."""
    count = tx.run("DELETE FROM message")
    tx.run("DELETE FROM button")
    tx.run("UPDATE inbox SET done_at = at, payload = '' WHERE done_at = 0")
    tx.run("DELETE FROM watch WHERE subject LIKE '~%'")
    tx.run("DELETE FROM state WHERE name IN ('cursor', 'core', 'last_event', 'mismatch')")
    return count


def lease(reads: Reads, name: str) -> Row | None:
    return reads.row("SELECT * FROM lease WHERE name = :name", {"name": name})


def set_lease(tx: Transaction, name: str, owner: str, until: int) -> None:
    tx.run(
        """INSERT INTO lease (name, owner, until) VALUES (:name, :owner, :until)
           ON CONFLICT (name) DO UPDATE SET owner = :owner, until = :until""",
        {"name": name, "owner": owner, "until": until},
    )


def release(tx: Transaction, name: str, owner: str) -> None:
    tx.run("DELETE FROM lease WHERE name = :name AND owner = :owner", {"name": name, "owner": owner})


def watch(tx: Transaction, team: str, user: str, subject: str, now: int) -> bool:
    return bool(
        tx.run(
            "INSERT INTO watch (team, user, subject, at) VALUES (:team, :user, :subject, :now) ON CONFLICT DO NOTHING",
            {"team": team, "user": user, "subject": subject, "now": now},
        )
    )


def unwatch(tx: Transaction, team: str, user: str, subject: str) -> bool:
    return bool(
        tx.run(
            "DELETE FROM watch WHERE team = :team AND user = :user AND subject = :subject",
            {"team": team, "user": user, "subject": subject},
        )
    )


def watched(reads: Reads, team: str, user: str) -> list[Row]:
    return reads.rows(
        "SELECT subject FROM watch WHERE team = :team AND user = :user ORDER BY at", {"team": team, "user": user}
    )


def watchers(reads: Reads, names: Sequence[str]) -> list[Row]:
    """Who watches any of these ids or responders; each person once."""
    given = {f"s{n}": name for n, name in enumerate(names)}
    return reads.rows(
        f"SELECT DISTINCT team, user FROM watch WHERE subject IN ({','.join(f':{n}' for n in given)})", given
    )


def prune(tx: Transaction, inbox_before: int, buttons_before: int) -> None:
    """Forget settled clicks and long expired buttons; messages stay, as old cards live for ever."""
    tx.run("DELETE FROM inbox WHERE done_at > 0 AND done_at < :before", {"before": inbox_before})
    tx.run("DELETE FROM button WHERE expires_at < :before", {"before": buttons_before})
