"""The interface between core and an engine, which runs responders (core/engines/README.md)."""

import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import with_config

from core.common.words import spaced

JsonObject = Mapping[str, Any]


@dataclass(frozen=True)
class Responder:
    id: str
    """The engine's id for it."""
    name: str
    """The definition's id, such as `Mailer_1_0`; the catalogues of several engines are merged by it."""
    version: str
    description: str
    data_types: tuple[str, ...]
    """The definition's `dataTypeList`, such as `thehive:alert`, unchanged."""
    max_tlp: int = 3
    """The highest TLP of an object it may run on; 3 if its check is off."""
    max_pap: int = 3
    """The highest PAP, likewise."""
    definition: str = ""
    """`responderDefinition` in the HTTP interface."""
    title: str = ""
    """For people; derived from the name if empty."""
    parameters: tuple[JsonObject, ...] = ()
    """The parameters that it declares, as the interface shows them (`core.models.Parameter`)."""
    target: tuple[str, ...] = ()
    """The data types of the artifacts that it acts on, where its definition says so."""
    items: tuple[str, ...] = ()
    """Names of the configuration items that the settings may set; none if the engine keeps the configuration."""
    code: str = ""
    """The SHA-256 of its files, for the audit; "" if the engine doesn't say."""


@dataclass(frozen=True)
class Skipped:
    """A responder that can't be used. Stored as JSON with the catalogue, as `Responder` is."""

    name: str
    reason: str
    """A sentence for administrators that names file and reason."""
    responder: Responder | None = None
    """The responder, if its definition could be read."""
    public_reason: str = ""
    """The reason for everyone else, without paths, such as `not configured: url missing`."""
    is_wanted: bool = True
    """False for one with configuration items that the settings don't mention, which is no problem."""


@with_config(extra="forbid")  # another release may store limits that this one doesn't know
@dataclass(frozen=True)
class Catalogue:
    """The responders of an engine, and those that it had to skip."""

    responders: tuple[Responder, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    unreadable: tuple[str, ...] = ()
    """A sentence for each folder of responders that can't be read."""


@dataclass(frozen=True)
class Job:
    """One run of a responder, as given to an engine. After a restart `Engine.run` may get the same job again."""

    action_id: str
    """`~<digits>`; a database that lost its last actions gives their ids to others."""
    run_id: str
    """`<digits>-<random>`, which no other action ever has. An engine finds everything about a run by it."""
    responder_id: str
    """The engine's own id of the responder."""
    responder_name: str
    data: JsonObject
    data_type: str
    """The kind of `data`, such as `thehive:alert`, in lower case."""
    tlp: int
    """0 (CLEAR) to 3 (RED), as is `pap`."""
    pap: int
    parameters: JsonObject = field(default_factory=dict)
    engine_job_id: str = ""
    """The engine's id of the job as reported by an earlier `Progress`, if any."""
    resumed: bool = False
    """True if the job was dispatched before: find its state, and never run it a second time."""
    seen_running: bool = False
    """True if its program was seen running: if no trace of it is left, the run is lost."""
    cancelled: bool = False
    """True if it was cancelled before it was resumed: don't start it if it has not started."""

    def input(self) -> JsonObject:
        """What the responder gets of it, with the keys in their documented order."""
        return {
            "data": self.data,
            "dataType": self.data_type,
            "tlp": self.tlp,
            "pap": self.pap,
            "message": "",
            "parameters": self.parameters,
        }


@dataclass(frozen=True)
class Progress:
    """The state of a job that has not ended, reported as soon as it is known."""

    engine_job_id: str
    running: bool = False
    """True once the program has started; moves the action to `InProgress`."""


@dataclass(frozen=True)
class Report:
    """How a job ended. A responder that fails is a value, not an exception."""

    success: bool
    message: str = ""
    """A sentence for people; after a failure, what went wrong."""
    full: JsonObject = field(default_factory=dict)
    summary: JsonObject = field(default_factory=dict)
    artifacts: tuple[Any, ...] = ()
    operations: tuple[Any, ...] = ()
    """As the responder returned them, unchecked: each may be any JSON value."""
    error_message: Any = None
    """The responder's `errorMessage`, any JSON value."""
    input: JsonObject | None = None
    """The `input` that the responder returned, redacted."""
    config: JsonObject = field(default_factory=dict)
    """The configuration of the run, redacted, with TLP and PAP checks, proxy, cacerts and jobTimeout."""
    is_known: bool = False
    """Of a failure: whether the responder itself said so, or never ran; else it may have had its effect."""
    printed: str = ""
    """Head and tail of what the program printed, redacted."""


_OWN_VENDOR = "ResponderBot"
_VERSION = re.compile(r"_[0-9]+(?:_[0-9]+)*$", re.ASCII)


def name_of(definition_id: str, version: str = "") -> str:
    """The name in a definition's id: `Mailer` of `Mailer_1_0`."""
    ending = f"_{version.replace('.', '_')}"
    return definition_id.removesuffix(ending) if version else _VERSION.sub("", definition_id)


def title_of(name: str, vendor: str = "") -> str:
    """A responder's name (without its version) as people read it, without the prefix of its vendor."""
    for prefix in (vendor, _OWN_VENDOR):
        rest = name[len(prefix) + 1 :]
        if prefix and rest and name[: len(prefix)].lower() == prefix.lower() and name[len(prefix)] in "_-":
            return spaced(rest)
    return spaced(name)


OnProgress = Callable[[Progress], Awaitable[None]]
"""Called by an engine whenever the state of a job changes."""

OpenRunIds = Callable[[], Awaitable[Collection[str]]]
"""Called by an engine to learn which runs have not ended."""


class Engine(Protocol):
    """Runs responders. Every method may be called at any time and from several tasks of one event loop.

    The defaults are those of a remote engine, which keeps nothing on this host.
    """

    @property
    def name(self) -> str: ...

    @property
    def capacity(self) -> int | None:
        """How many jobs it runs at once; further ones queue in core, where they can be cancelled. None: unlimited."""
        return None

    async def catalogue(self) -> Catalogue:
        """Its responders now. Raises ResponderBotError("unavailable") if they can't be listed."""

    @property
    def runs_here(self) -> bool:
        """Whether its programs run on this host and are lost with it; False if any host may follow them."""
        return False

    @property
    def runs_programs(self) -> bool:
        """Whether it starts programs under an account of this machine, which core confines."""
        return False

    async def unreadable_secrets(self) -> list[str]:
        """A sentence for each responder with a value that can't be read now. Reads all values, and runs no responder.

        Raises as `catalogue` does.
        """
        return []

    def job_id(self, run_id: str) -> str:
        """The engine's id of a run's job if it is known before the job runs, else `""`."""
        return ""

    async def run(self, job: Job, on_progress: OnProgress) -> Report:
        """Run the job to its end, or with `job.resumed` follow the one that already runs.

        Calls `on_progress` with `running` once the program has started. Whatever the responder or a server does is
        returned as a Report with success False, not raised. Cancelling this coroutine, as core does when it stops,
        leaves the job running. A later call for the same run, wherever an earlier one was interrupted, never runs the
        responder twice.
        """

    async def cancel(self, job: Job) -> None:
        """Stop a running job; `run` then returns. Raises ResponderBotError("conflict") when it can't be stopped."""

    async def clean_up(self, run_id: str) -> None:
        """Remove the files of a job whose report is stored. May be called twice."""
        return

    async def clean_up_ended(self, open_run_ids: OpenRunIds) -> None:
        """At start, remove the files of runs that have ended.

        `open_run_ids` must be called after the leftovers are listed: then a run that another core accepts meanwhile is
        either not listed or open.
        """
        return

    async def close(self) -> None:
        """Close connections and helper processes; running jobs go on."""
        return


def reported_success(output: JsonObject) -> Report:
    """The report of a responder whose `output` says success; a failure if its `full` is not an object.

    What should be a list and isn't is one entry, which is rejected when operations are checked.
    """
    full, summary = output.get("full"), output.get("summary")
    if not isinstance(full, Mapping):
        problem = "The responder says success, but its `full` is not an object."
        return Report(False, problem, error_message=problem)
    message = full.get("message", full.get("Message"))  # some public responders capitalise it
    return Report(
        True,
        message=message if isinstance(message, str) else "",
        full=full,
        summary=summary if isinstance(summary, Mapping) else {},
        artifacts=_as_tuple(output.get("artifacts")),
        operations=_as_tuple(output.get("operations")),
    )


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    return tuple(value) if isinstance(value, list) else (value,)


def describe_error(error_message: Any) -> str:
    """A sentence for people from a responder's `errorMessage`, which may be any JSON value."""
    if isinstance(error_message, str):
        return error_message.strip() or "The responder failed and gave no reason."
    if isinstance(error_message, Mapping):
        inner = error_message.get("message") or error_message.get("errorMessage")
        if isinstance(inner, str) and inner.strip():
            return inner.strip()
    if error_message is None:
        return "The responder failed and gave no reason."
    return f"The responder failed and said: {error_message}"
