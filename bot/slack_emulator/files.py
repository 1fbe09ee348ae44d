"""Files uploaded by the app or by users, in memory."""

import secrets
from dataclasses import dataclass
from urllib.parse import quote

from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.state import Json, Team, new_id

SIZE_LIMIT = 50_000_000  # enough for any report, and bounded because files are held in memory


@dataclass
class StoredFile:
    """One file; `content` is None until uploaded and after deletion."""

    id: str
    key: str
    name: str
    title: str
    length: int
    user_id: str
    created: int
    content: bytes | None = None
    is_deleted: bool = False

    def to_json(self, base_url: str) -> Json:
        """Slack's file object."""
        extension = self.name.rpartition(".")[2].lower() if "." in self.name else "text"
        return {
            "id": self.id,
            "created": self.created,
            "timestamp": self.created,
            "name": self.name,
            "title": self.title,
            "filetype": extension,
            "size": self.length,
            "user": self.user_id,
            "mode": "hosted",
            "url_private": f"{base_url}/files-pri/{self.id}/{quote(self.name, safe='')}",
            "url_private_download": f"{base_url}/files-pri/{self.id}/download/{quote(self.name, safe='')}",
        }


class Files:
    """Uploads in Slack's three steps: get an upload URL, send the content, complete the upload."""

    def __init__(self, team: Team) -> None:
        self.base_url = ""
        self._team = team
        self._files: dict[str, StoredFile] = {}

    def request_upload(self, name: str, length: int, user_id: str) -> StoredFile:
        """Reserve a file and its upload URL (files.getUploadURLExternal)."""
        if not name or length <= 0:
            raise SlackError("invalid_arguments")
        if length > SIZE_LIMIT:
            raise SlackError("file_upload_size_restricted")
        stored = StoredFile(
            new_id("F"), secrets.token_urlsafe(18), name, name, length, user_id, int(self._team.clock())
        )
        self._files[stored.id] = stored
        return stored

    def store_content(self, key: str, content: bytes) -> StoredFile:
        """Store content sent to an upload URL. Raises `file_not_found` or `file_size_mismatch`."""
        stored = next((f for f in self._files.values() if secrets.compare_digest(f.key, key)), None)
        if stored is None:
            raise SlackError("file_not_found", status=404)
        if len(content) != stored.length:
            raise SlackError("file_size_mismatch", status=400)
        stored.content = content
        return stored

    def complete_upload(self, file_id: str, title: str | None) -> StoredFile:
        """Complete one file of files.completeUploadExternal. Raises `file_not_found`."""
        stored = self._files.get(file_id)
        if stored is None or stored.content is None:
            raise SlackError("file_not_found")
        stored.title = title or stored.name
        return stored

    def to_json(self, file_id: str) -> Json:
        """Slack's file object. Raises `file_not_found`."""
        stored = self.get(file_id)
        if stored is None:
            raise SlackError("file_not_found")
        return stored.to_json(self.base_url)

    def delete(self, file_id: str) -> None:
        """Delete one of the app's files; messages keep a tombstone (files.delete)."""
        stored = self._files.get(file_id)
        if stored is None:
            raise SlackError("file_not_found")
        if stored.is_deleted:
            raise SlackError("file_deleted")
        if stored.user_id != self._team.bot_user_id:
            raise SlackError("cant_delete_file")
        stored.is_deleted, stored.content = True, None
        for channel in self._team.channels.values():
            for message in list(channel.messages.values()):
                shown = message.get("files") or []
                if any(file["id"] == file_id for file in shown):
                    left = [{"id": file_id, "mode": "tombstone"} if f["id"] == file_id else f for f in shown]
                    self._team.change(channel, message["ts"], {"files": left})

    def get(self, file_id: str) -> StoredFile | None:
        """A file that has content, else None."""
        stored = self._files.get(file_id)
        return stored if stored is not None and stored.content is not None else None
