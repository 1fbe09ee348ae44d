"""The SQL of the file table (bot/docs/delivery.md#states-of-a-file)."""

from core.common.database import Transaction


def upsert(tx: Transaction, message_key: str, file: tuple[str, str] | None, now: int) -> None:
    """Attach a file (name, text) to a message, or remove the one that it has. A deleted message gets none."""
    if file is None:
        tx.run(
            """UPDATE file SET status = 'removing', text = '', due_at = :now, failures = 0, problem = ''
               WHERE message_key = :key AND status <> 'removing'""",
            {"key": message_key, "now": now},
        )
        return
    tx.run(
        """INSERT INTO file (message_key, name, text, slack_id, status, due_at, failures, problem)
           SELECT key, :name, :text, '', 'unsent', :now, 0, '' FROM message WHERE key = :key AND status <> 'deleted'
           ON CONFLICT (message_key) DO UPDATE SET
               name = :name, text = :text, due_at = :now, failures = 0, problem = '',
               status = CASE file.slack_id WHEN '' THEN 'unsent' ELSE 'uploading' END
           WHERE file.status = 'removing'""",
        {"key": message_key, "name": file[0], "text": file[1], "now": now},
    )


def set_id(tx: Transaction, message_key: str, slack_id: str) -> bool:
    """Record the file's id in Slack before Slack shows it; False if it must not be shown any more.

    Also False if another replica has recorded one, whose file is the one to show.
    """
    values = {"key": message_key, "slack_id": slack_id}
    tx.run("UPDATE file SET slack_id = :slack_id WHERE message_key = :key AND slack_id = ''", values)
    sql = "UPDATE file SET status = 'uploading' WHERE message_key = :key AND status = 'unsent' AND slack_id = :slack_id"
    return bool(tx.run(sql, values))


def start_over(tx: Transaction, message_key: str) -> None:
    """Upload it again, since Slack has deleted the content."""
    tx.run(
        """UPDATE file SET slack_id = '', status = CASE status WHEN 'uploading' THEN 'unsent' ELSE status END
           WHERE message_key = :key""",
        {"key": message_key},
    )


def mark_shown(tx: Transaction, message_key: str) -> None:
    """Note that Slack shows the file, and drop its text; unless it must be removed meanwhile."""
    # Without `message_key = message_key` SQLite would keep the pages, each nearly empty.
    tx.run(
        """UPDATE file SET message_key = message_key, status = 'shown', text = '', failures = 0, problem = ''
           WHERE message_key = :key AND status = 'uploading'""",
        {"key": message_key},
    )


def mark_removed(tx: Transaction, message_key: str) -> None:
    """Note that Slack has no such file any more; if it is desired again meanwhile, it is uploaded again."""
    values = {"key": message_key}
    tx.run("DELETE FROM file WHERE message_key = :key AND status = 'removing'", values)
    tx.run("UPDATE file SET slack_id = '', status = 'unsent' WHERE message_key = :key", values)


def give_up(tx: Transaction, message_key: str) -> None:
    """A message was deleted, and with it replies: upload nothing more, and remove what may or may not be shown."""
    deleted = """message_key IN (
        SELECT key FROM message WHERE (key = :key OR thread_of = :key AND thread_of <> '') AND status = 'deleted')"""
    values = {"key": message_key}
    tx.run(f"DELETE FROM file WHERE status = 'unsent' AND {deleted}", values)  # noqa: S608  # a constant
    tx.run(f"UPDATE file SET status = 'removing' WHERE status = 'uploading' AND {deleted}", values)  # noqa: S608


def retry_at(tx: Transaction, message_key: str, due_at: int, problem: str) -> None:
    """Try again at `due_at`; `problem` is the sentence for `doctor`."""
    tx.run(
        "UPDATE file SET due_at = :due_at, failures = failures + 1, problem = :problem WHERE message_key = :key",
        {"key": message_key, "due_at": due_at, "problem": problem},
    )
