"""Artifacts of alerts and cases: expanded from requests, told apart by their data, kept within bounds."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import TypeVar

from core.common.database.sqlite import Transaction
from core.common.errors import ResponderBotError
from core.field_types import MAX_ARTIFACTS
from core.models import Artifact, ArtifactInput, ArtifactsInput, Case
from core.records import files
from core.records.writes import insert_children, number_of
from core.store import objects

# A request of 1 MiB can ask for a text to be stored thousands of times: with each artifact, or each of many alerts.
COPIED_LIMIT_CHARS = 8 * 1_048_576
ARTIFACT_CHARS = 256  # what an artifact takes besides its texts

A = TypeVar("A", ArtifactInput, ArtifactInput | Artifact)


def expand_artifacts(
    requested: Sequence[ArtifactsInput], *, times: int = 1, more_chars: int = 0
) -> list[ArtifactInput]:
    """One artifact for each entry of `data`.

    They and `more_chars` characters are to be stored `times` over. Raises ResponderBotError: too_large if that is
    over the limit, bad_request for too many artifacts.
    """
    shared = (
        (len(item.data), ARTIFACT_CHARS + len(item.message or "") + sum(map(len, item.tags))) for item in requested
    )
    if sum(len(item.data) for item in requested) > MAX_ARTIFACTS:
        raise ResponderBotError("bad_request", f"The request has over {MAX_ARTIFACTS} artifacts; send fewer at once.")
    if times * (more_chars + sum(count * chars for count, chars in shared)) > COPIED_LIMIT_CHARS:
        sentence = f"The artifacts to store are over the limit of {COPIED_LIMIT_CHARS} characters; send fewer at once."
        raise ResponderBotError("too_large", sentence)
    return [artifact for item in requested for artifact in item.expand()]


def store_files(tx: Transaction, requested: Iterable[A]) -> list[A]:
    """The artifacts with their files stored. Raises ResponderBotError("bad_request") for an unknown file."""
    return [
        item.model_copy(update={"attachment": files.store(tx, item.data), "is_file": False})
        if isinstance(item, ArtifactInput) and item.is_file
        else item
        for item in requested
    ]


def identity(artifact: ArtifactInput | Artifact) -> tuple[str, ...]:
    """Equal for two artifacts that are the same: data type, and data or file."""
    if artifact.attachment is not None:
        return artifact.data_type, "file", artifact.attachment.id
    return artifact.data_type, artifact.data or ""


def artifact_of(number: int, requested: ArtifactInput | Artifact, user: str, now: int) -> Artifact:
    """The artifact of a request under a number, not stored yet."""
    return Artifact(
        id_=f"~{number}",
        id=f"~{number}",
        created_by=user,
        created_at=now,
        data_type=requested.data_type,
        data=requested.data if requested.attachment is None else None,
        attachment=requested.attachment,
        start_date=now if requested.start_date is None else requested.start_date,
        message=requested.message,
        tlp=requested.tlp,
        tags=requested.tags,
        ioc=requested.ioc,
        sighted=requested.sighted,
    )


def add_to_case(
    tx: Transaction,
    case: Case,
    requested: Sequence[ArtifactInput | Artifact],
    user: str,
    now: int,
    *,
    skip_known: bool = False,
) -> list[Artifact]:
    """Add artifacts to a case, all or none; with `skip_known` those that it doesn't have yet.

    Raises ResponderBotError: exists if the case has one of them already, bad_request for an unknown file.
    """
    root, requested = number_of(case), store_files(tx, requested)
    keys = [_unique_key(root, item) for item in requested]
    seen, new = objects.taken(tx, "case_artifact", keys), list[tuple[str, ArtifactInput | Artifact]]()
    for key, item in zip(keys, requested, strict=True):
        if key not in seen:
            seen.add(key)
            new.append((key, item))
        elif not skip_known:
            raise ResponderBotError("exists", f"The case {case.id} has this {item.data_type} already.")
    numbers = objects.next_ids(tx, len(new))
    artifacts = [artifact_of(number, item, user, now) for number, (_, item) in zip(numbers, new, strict=True)]
    rows = [
        objects.NewObject(number_of(artifact), artifact.to_json(), key)
        for artifact, (key, _) in zip(artifacts, new, strict=True)
    ]
    insert_children(tx, "case_artifact", rows, root, user, now)
    return artifacts


def _unique_key(case: int, artifact: ArtifactInput | Artifact) -> str:
    """A hash, since data may be long."""
    return hashlib.sha256(json.dumps([case, *identity(artifact)]).encode()).hexdigest()
