"""What an engine is: the contract between an action and whatever runs its responder.

A new kind of engine is one module that fulfils `Engine`, and one line in `core.engines.ENGINES`.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

JsonObject = Mapping[str, Any]


@dataclass(frozen=True)
class Responder:
    """One entry of an engine's catalogue, as that engine knows it (`interface.md 2.2`)."""

    id: str
    name: str
    """The definition's id, such as `Mailer_1_0`; catalogues are merged by it (`semantics.md 4`)."""
    version: str
    description: str
    data_types: tuple[str, ...]
    """Kinds as the definition gives them, such as `thehive:alert`."""
    max_tlp: int = 3
    """The highest TLP it may see; 3 where the check is off."""
    max_pap: int = 3
    definition: str = ""
    """`responderDefinition` on the wire; the name where the engine has nothing else."""
    items: tuple[str, ...] = ()
    """What the settings may give it, by name; none where the engine keeps the configuration itself."""


@dataclass(frozen=True)
class Skipped:
    """A definition that can't be used, and why, in one sentence that names file and reason."""

    name: str
    reason: str
    responder: Responder | None = None
    """What it would be, where so much could be read."""
    objection: str = ""
    """The reason for people who see no files of this machine, such as `not configured: url missing`."""
    is_wanted: bool = True
    """False for one that came along and that nobody has configured."""


@dataclass(frozen=True)
class Catalogue:
    """What an engine offers, and what it had to leave out."""

    responders: tuple[Responder, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    unreadable: tuple[str, ...] = ()
    """A sentence for each folder of the settings that can't be read."""


@dataclass(frozen=True)
class Job:
    """One run of a responder, as the engine needs to know it.

    The same job may be given to `Engine.run` again after a restart; `engine_job_id` is then what was known before.
    """

    action_id: str
    """`~<digits>`; also the label on a remote engine, so that a lost job can be found."""
    responder_id: str
    """The engine's own id of the responder."""
    responder_name: str
    data: JsonObject
    data_type: str
    """Such as `thehive:alert`, in lower case (`semantics.md 7`)."""
    tlp: int
    pap: int
    message: str = ""
    parameters: JsonObject = field(default_factory=dict)
    engine_job_id: str = ""
    resumed: bool = False
    """True when an earlier owner had handed it over: settle it by looking, never by running it twice."""
    seen_running: bool = False
    """True when its program was known to run: a job that has vanished since can only have been lost."""
    cancelled: bool = False
    """True when it was cancelled before `Engine.run` got it again: what has not been started is not started."""


@dataclass(frozen=True)
class Progress:
    """News of a job on its way, told as soon as it is known."""

    engine_job_id: str
    running: bool = False
    """True from when the program has really started; it moves the action to `InProgress`."""
    pid: int | None = None
    pid_started: int | None = None
    """Start time of that process in clock ticks since boot (`/proc/<pid>/stat` field 22)."""


@dataclass(frozen=True)
class Report:
    """How a job ended. A responder that fails is a value, not an exception (`architecture.md 4.5`)."""

    success: bool
    message: str = ""
    """The sentence for people; for a failure what went wrong."""
    full: JsonObject = field(default_factory=dict)
    summary: JsonObject = field(default_factory=dict)
    artifacts: tuple[Any, ...] = ()
    operations: tuple[Any, ...] = ()
    """As the responder asked for them, unchecked: any JSON may be in here."""
    error_message: Any = None
    """The responder's own `errorMessage`, any JSON."""
    input: JsonObject | None = None
    """The responder's `input` as it gave it back, secrets removed."""
    config: JsonObject = field(default_factory=dict)
    """The configuration of the run, secrets removed; with proxy, cacerts, the TLP and PAP checks, jobTimeout."""
    printed: str = ""
    """What the program printed, bounded."""


OnProgress = Callable[[Progress], Awaitable[None]]


class Engine(Protocol):
    """Runs responders. Every method may be called at any time and from several tasks of one event loop."""

    @property
    def name(self) -> str: ...

    @property
    def capacity(self) -> int | None:
        """How many jobs it takes at once; more wait in core, where they can still be cancelled. None: no bound."""

    async def catalogue(self) -> Catalogue:
        """What it offers now. Raises ResponderBotError("unavailable") with the reason when it can't say."""

    def job_id(self, action_id: str) -> str:
        """The job's id if it is fixed before the engine is called (process engine), else `""`."""

    async def run(self, job: Job, on_progress: OnProgress) -> Report:
        """Run the job, or with `job.resumed` follow the one that already runs, up to its end.

        Never raises for what the responder or the engine does: that is a Report with success False. It tells
        `running` once the program has started. Cancelling this coroutine (core stops) leaves the job running.
        Safe to be called again for the same action at any point of an earlier call: nothing runs twice.
        """

    async def cancel(self, job: Job) -> None:
        """Stop a running job; `run` then returns. Raises ResponderBotError("conflict") where that can't be done."""

    async def clean_up(self, action_id: str) -> None:
        """The action's report is stored: clean up what was kept of the job."""

    async def sweep(self, open_action_ids: Callable[[], Collection[str]]) -> None:
        """At start: clean up what is left of actions that have ended.

        The open ones are asked for after looking what is left: an action that another core accepts meanwhile is
        either not yet to be seen, or among them.
        """

    async def close(self) -> None:
        """Let go of connections and threads; running jobs go on."""


def describe_error(error_message: Any) -> str:
    """Text for people made of an `errorMessage`, which may be any JSON (`responder-process.md 2`)."""
    if isinstance(error_message, str):
        return error_message.strip() or "The responder failed and gave no reason."
    if isinstance(error_message, Mapping):
        inner = error_message.get("message") or error_message.get("errorMessage")
        if isinstance(inner, str) and inner.strip():
            return inner.strip()
    if error_message is None:
        return "The responder failed and gave no reason."
    return f"The responder failed and said: {error_message}"
