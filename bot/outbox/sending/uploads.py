"""Files in threads: uploaded in three calls; only the last one shows the file."""

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.outbox.errors import classify
from bot.outbox.models import MessageRecord
from bot.outbox.sending import files
from core.common.database import Database

UPLOAD_FILE = "files.completeUploadExternal"  # the last call, which stands for all three in rate limits and errors
DELETE_FILE = "files.delete"
NO_FILE = ("file_not_found", "file_deleted")


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
            if not await self._store.transaction(lambda tx: files.set_id(tx, message.key, file_id)):
                return
        elif await self._is_posted(message):
            await self._store.transaction(lambda tx: files.mark_shown(tx, message.key))
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
            await self._store.transaction(lambda tx: files.start_over(tx, message.key))
            return
        await self._store.transaction(lambda tx: files.mark_shown(tx, message.key))

    async def delete(self, message: MessageRecord) -> None:
        """Delete the file in Slack, if it is there."""
        if message.file_id:
            try:
                await self._slack.api_call(DELETE_FILE, json={"file": message.file_id})
            except SlackApiError as error:
                if classify(error).code not in NO_FILE:
                    raise
        await self._store.transaction(lambda tx: files.mark_removed(tx, message.key))

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
