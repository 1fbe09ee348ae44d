"""Files in threads: the SQL of their table (bot/docs/delivery.md#states-of-a-file), and how Slack gets them.

They are uploaded in three calls; only the last one shows the file.
"""

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.outbox.errors import classify
from bot.outbox.models import MessageRecord
from core.common.database import Database, Transaction

UPLOAD_FILE = "files.completeUploadExternal"  # the last call, which stands for all three in rate limits and errors
DELETE_FILE = "files.delete"
NO_FILE = ("file_not_found", "file_deleted")


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


class Uploads:
    """Makes Slack show, or delete, the file of a message. Errors of Slack are raised."""

    def __init__(self, store: Database, slack: AsyncWebClient) -> None:
        self._store = store
        self._slack = slack

    async def upload(self, message: MessageRecord) -> None:
        """Post the file. Its id is stored before the last call, so that after a lost answer it is looked for."""
        file_id = message.file_id
        if not file_id:
            file_id = await self._upload_content(message)
            if not await self._store.transaction(lambda tx: set_id(tx, message.key, file_id)):
                return
        elif await self._is_posted(message):
            await self._store.transaction(lambda tx: mark_shown(tx, message.key))
            return
        try:
            await self._slack.api_call(
                UPLOAD_FILE,
                json={
                    "files": [{"id": file_id, "title": message.file_name}],
                    "channel_id": message.slack_channel,
                    "thread_ts": message.root_ts or message.ts,
                },
            )
        except SlackApiError as error:
            if classify(error).code not in NO_FILE or not message.file_id:
                raise
            await self._store.transaction(lambda tx: start_over(tx, message.key))
            return
        await self._store.transaction(lambda tx: mark_shown(tx, message.key))

    async def delete(self, message: MessageRecord) -> None:
        """Delete the file in Slack, if it is there."""
        if message.file_id:
            try:
                await self._slack.api_call(DELETE_FILE, json={"file": message.file_id})
            except SlackApiError as error:
                if classify(error).code not in NO_FILE:
                    raise
        await self._store.transaction(lambda tx: mark_removed(tx, message.key))

    async def _upload_content(self, message: MessageRecord) -> str:
        """Send the text to Slack, which shows it nowhere yet; returns the file's id."""
        content = message.file_text.encode("utf-8", "replace")
        response = await self._slack.api_call(
            "files.getUploadURLExternal",
            http_verb="GET",
            params={"filename": message.file_name, "length": str(len(content))},
        )
        async with aiohttp.ClientSession() as session, session.post(str(response["upload_url"]), data=content) as put:
            put.raise_for_status()
        return str(response["file_id"])

    async def _is_posted(self, message: MessageRecord) -> bool:
        thread = {"channel": message.slack_channel, "ts": message.root_ts or message.ts}
        response = await self._slack.api_call(
            "conversations.replies",
            http_verb="GET",
            params={**thread, "oldest": message.ts, "limit": 200},
        )
        files = [file for reply in response.get("messages") or [] for file in reply.get("files") or []]
        return any(file.get("id") == message.file_id and file.get("mode") != "tombstone" for file in files)
