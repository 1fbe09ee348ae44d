"""The files of artifacts; equal contents are stored once, under their SHA-256."""

import base64
import hashlib
import json

from core.common.database import Reads, Transaction
from core.common.errors import ResponderBotError
from core.models import Attachment
from core.store import objects

KIND = "file"
STORED_PREFIX = "sha256:"  # in place of the content: the id of a file that is stored already


def store(tx: Transaction, text: str) -> Attachment | None:
    """Store the file in `name;type;content`, with its content in base64; None if the text isn't one.

    In place of its content, `sha256:<id>` names a file that is stored already. Raises ResponderBotError("bad_request")
    if there is none with that id.
    """
    parts = text.split(";")
    if len(parts) != 3 or not parts[0]:
        return None
    name, kind, content = parts
    if content.startswith(STORED_PREFIX):
        return _known(tx, name, kind, content.removeprefix(STORED_PREFIX))
    try:
        raw = base64.b64decode(content, validate=True)
    except ValueError:  # also for characters beyond ASCII
        return None
    return _new(tx, name, kind, raw, content)


def content_of(reads: Reads, file_id: str) -> bytes:
    """The bytes of a file. Raises ResponderBotError("not_found")."""
    row = objects.find_unique(reads, KIND, file_id)
    if row is None:
        raise ResponderBotError("not_found", "File not found")
    return base64.b64decode(objects.parsed(row["doc"])["content"])


def _known(tx: Transaction, name: str, kind: str, file_id: str) -> Attachment:
    row = objects.find_unique(tx, KIND, file_id)
    if row is None:
        raise ResponderBotError("bad_request", f"There is no file {file_id[:64]}; send the file itself.")
    doc = objects.parsed(row["doc"])
    return Attachment(name=name, hashes=doc["hashes"], size=doc["size"], content_type=kind, id=file_id)


def _new(tx: Transaction, name: str, kind: str, raw: bytes, content: str) -> Attachment:
    file_id = hashlib.sha256(raw).hexdigest()
    weak = [hashlib.new(digest, raw, usedforsecurity=False).hexdigest() for digest in ("sha1", "md5")]
    attachment = Attachment(name=name, hashes=[file_id, *weak], size=len(raw), content_type=kind, id=file_id)
    if objects.find_unique(tx, KIND, file_id) is None:
        doc = json.dumps({"hashes": attachment.hashes, "size": attachment.size, "content": content})
        objects.insert(tx, objects.next_id(tx), KIND, doc, unique_key=file_id)
    return attachment
