"""SQL for references to files: a file is deleted once no alert or artifact has it."""

from collections.abc import Iterable

from core.common.database import Reads, Transaction
from core.models import Artifact


def save(tx: Transaction, object_id: int, artifacts: Iterable[Artifact]) -> None:
    """Record the files of an alert's artifacts, or of an artifact of a case; mark the others as dropped."""
    now = {artifact.attachment.id for artifact in artifacts if artifact.attachment is not None}
    before = set(files_of(tx, object_id))
    tx.insert("file_reference", *({"file_id": file_id, "object_id": object_id} for file_id in now - before))
    for file_id in before - now:
        values = {"file": file_id, "object": object_id}
        tx.run("DELETE FROM file_reference WHERE file_id = :file AND object_id = :object", values)
        tx.insert("dropped_file", {"file_id": file_id}, otherwise="DO NOTHING")


def files_of(reads: Reads, object_id: int) -> list[str]:
    """The ids of the files that an alert or an artifact has."""
    return reads.column("SELECT file_id FROM file_reference WHERE object_id = :object", {"object": object_id})


def count_references(reads: Reads, file_id: str) -> int:
    """How many alerts and artifacts have a file."""
    return reads.number("SELECT count(*) AS total FROM file_reference WHERE file_id = :file", {"file": file_id})


def dropped(reads: Reads) -> list[str]:
    """Files that were dropped and perhaps have no other reference."""
    return reads.column("SELECT file_id FROM dropped_file ORDER BY file_id")


def settle(tx: Transaction, file_id: str) -> None:
    """Remove a file from those that were dropped."""
    tx.run("DELETE FROM dropped_file WHERE file_id = :file", {"file": file_id})
