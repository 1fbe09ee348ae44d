"""The engine `core`: Block and Unblock, whose effect is what core has in force (core/docs/blocklist.md)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from core.engines.base import Catalogue, Engine, Job, OnProgress, Report, Responder
from core.models import AMBER, RED
from core.protection import BLOCK, UNBLOCK, Blockable, Parsed
from core.protection.blockable import DATA_TYPES
from core.settings import OWN_ENGINE, CoreSettings

_BLOCK = "Have firewalls block an address, a domain, a URL or a hash for some time"
_UNBLOCK = "Take an address, a domain, a URL or a hash off the list that firewalls read"

Around = Callable[[Sequence[Parsed]], Awaitable[Mapping[Parsed, str]]]
"""Of targets that nothing blocks by themselves but a network around them: a sentence that names it."""


class OwnEngine(Engine):
    """Runs nothing: the transaction that stores a run's end puts its targets on the lists, or takes them off."""

    def __init__(self, settings: CoreSettings, around: Around | None = None) -> None:
        self._blockable = Blockable(settings.blocklist.never)
        self._kind = f"{settings.core.product}:alert"
        self._around = around

    @property
    def name(self) -> str:
        return OWN_ENGINE

    async def catalogue(self) -> Catalogue:
        return Catalogue(
            (
                # What is RED, or may not be acted on, stays off a list that many systems read.
                self._responder(BLOCK, _BLOCK, max_tlp=AMBER, max_pap=AMBER),
                self._responder(UNBLOCK, _UNBLOCK, max_tlp=RED, max_pap=RED),
            )
        )

    def _responder(self, name: str, description: str, **more: Any) -> Responder:
        types = (self._kind, *DATA_TYPES)
        return Responder(name, name, "1.0", description, types, definition=name, target=DATA_TYPES, **more)

    def job_id(self, run_id: str) -> str:
        return run_id

    async def run(self, job: Job, on_progress: OnProgress) -> Report:
        """The report of what its end will have done; the settings or what is in force may have changed since."""
        if job.cancelled:
            return Report(False, "It was cancelled before it ran.", is_known=True)
        named = [Parsed(item["target"]["kind"], item["data"]) for item in _acted_on(job.data)]
        shown = ", ".join(target.value for target in named)
        if job.responder_name == BLOCK:
            for target in named:
                if problem := self._blockable.why_not(target):
                    return Report(False, f"{problem}; nothing was blocked.", is_known=True)
            return _done(f"{shown} {_was(named)} put on the block list.")
        around = await self._around(named) if self._around else {}
        if around and "undoes" not in job.parameters:
            return Report(False, " ".join(around.values()), is_known=True)
        sentences = [] if around else [f"{shown} {_was(named)} taken off the block list."]
        return _done(" ".join([*sentences, *around.values()]))

    async def cancel(self, job: Job) -> None:
        return


def _acted_on(data: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The artifacts of a job; core has left out those of these types that its run doesn't act on."""
    return [item for item in data.get("artifacts", [data]) if item["dataType"].lower() in DATA_TYPES]


def _was(named: Sequence[Parsed]) -> str:
    return "was" if len(named) == 1 else "were"


def _done(message: str) -> Report:
    return Report(True, message, full={"message": message})
