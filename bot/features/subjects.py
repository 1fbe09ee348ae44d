"""From an id that somebody typed or clicked to what it names in core."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from bot.features.base import Context
from bot.features.typed import split_name_and_id
from bot.redaction import Subject, kind_of
from core.common.errors import ResponderBotError
from core.models import Action, Artifact, Case, Kind, Log, Task

if TYPE_CHECKING:
    from core.client import CoreClient

Reader = Callable[["CoreClient", str], Awaitable[Subject]]


async def find(core: "CoreClient", object_id: str) -> Subject:
    """What an id names: an alert, mostly; else a case, task, log or artifact. Raises "not_found"."""
    found = await _read(core, "alert", object_id)
    if found is not None:
        return found
    others: list[Kind] = ["case", "case_task", "case_task_log", "case_artifact"]
    for other in await asyncio.gather(*(_read(core, kind, object_id) for kind in others)):
        if other is not None:
            return other
    raise ResponderBotError("not_found", f"Nothing has the id {object_id}: no alert, case, task, log or artifact.")


async def of_kind(core: "CoreClient", kind: Kind, object_id: str) -> Subject:
    """The object of this kind. Raises "not_found"."""
    return await _READERS[kind](core, object_id)


async def of_action(core: "CoreClient", action: Action) -> Subject:
    """What an action ran on; when it is gone, a subject of which nothing is shown."""
    found = await _read(core, kind_of(action.object_type), action.object_id)
    return found or Subject.unknown(action)


def id_in(moment: Context, usage: str) -> tuple[str, str]:
    """Name (may be empty) and id of a command's text. Raises "bad_request" with an example where there is no id."""
    name, object_id = split_name_and_id(moment.text)
    if object_id is None:
        raise ResponderBotError("bad_request", no_id(usage)(moment.text, moment.tools.command))
    return name, object_id


def no_id(usage: str) -> Callable[[str, str], str]:
    """The mistake of a command that wants an id and was given none (`Command.mistake`)."""

    def mistake(rest: str, command: str) -> str:
        if split_name_and_id(rest)[1] is not None:
            return ""
        verb = usage.partition(" ")[0]
        return f"Which one? Type `{command} {verb}` and the id, such as {command} {usage.replace('~id', '~12')}."

    return mistake


async def _read(core: "CoreClient", kind: Kind, object_id: str) -> Subject | None:
    try:
        return await of_kind(core, kind, object_id)
    except ResponderBotError as error:
        if error.code in ("not_found", "log_not_found"):
            return None
        raise


async def _alert(core: "CoreClient", object_id: str) -> Subject:
    return Subject.alert(await core.alert(object_id))


async def _case(core: "CoreClient", object_id: str) -> Subject:
    return Subject.case(await core.case(object_id))


async def _task(core: "CoreClient", object_id: str) -> Subject:
    found = await core.object_in_context("case_task", object_id)
    return Subject.task(Task.model_validate(found.object), _case_in(found.object))


async def _log(core: "CoreClient", object_id: str) -> Subject:
    found = await core.object_in_context("case_task_log", object_id)
    return Subject.log(Log.model_validate(found.object), _case_in(_mapping(found.object.get("case_task"))))


async def _artifact(core: "CoreClient", object_id: str) -> Subject:
    found = await core.object_in_context("case_artifact", object_id)
    return Subject.artifact(Artifact.model_validate(found.object), _case_in(found.object))


def _case_in(holder: Mapping[str, Any]) -> Case | None:
    """The case above an object; None, and so the highest TLP, where it isn't told."""
    try:
        return Case.model_validate(holder.get("case"))
    except ValidationError:
        return None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


_READERS: dict[Kind, Reader] = {
    "alert": _alert,
    "case": _case,
    "case_task": _task,
    "case_task_log": _log,
    "case_artifact": _artifact,
}
