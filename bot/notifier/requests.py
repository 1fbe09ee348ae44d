"""A request to approve a run, or that it lasts longer, and who is asked by it."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from bot.clearance import Subject
from bot.features.runs.views import runs, undo_state
from bot.notifier.timeline import Thread, Timeline
from core.models import Action, Approval, Extension


@dataclass(frozen=True)
class Request:
    """What asks to approve a run, or with an `extension` that it lasts longer, in the threads of a timeline."""

    action: Action
    extension: Extension | None
    approval: Approval
    timeline: Timeline

    @property
    def id(self) -> str:
        """That of the run, or of the extension."""
        return self.action.id if self.extension is None else self.extension.id

    @property
    def key(self) -> str:
        """Begins the keys of its messages in threads, which end with the channel."""
        return f"approval:{self.id}" if self.extension is None else f"extension:{self.action.id}:{self.id}"

    @property
    def threads(self) -> Mapping[str, Thread]:
        """The threads that it is in, by the key of its message there."""
        return {f"{self.key}:{thread.channel}": thread for thread in self.timeline.threads}

    @cached_property
    def subject(self) -> Subject:
        """What the run is on."""
        return self.timeline.target(self.action)

    @property
    def waits(self) -> bool:
        """Whether it is still to be decided."""
        if self.extension is None:
            return runs.awaits_approval(self.action)
        return undo_state.later_end(self.action) is not None

    @property
    def asked_at(self) -> int:
        """When it was made (ms)."""
        return self.action.created_at if self.extension is None else self.extension.asked_at

    @property
    def is_half_over_at(self) -> int:
        """When half of the time to decide is over (ms)."""
        return (self.asked_at + self.approval.expires_at) // 2


@dataclass(frozen=True)
class Asked:
    """Who is notified of a request now."""

    direct: Set[str] = frozenset()  # the keys of direct messages
    mentioned: Sequence[str] = ()  # in its threads: the Slack ids of people and user groups
    is_for_channels: bool = False  # nobody is named to be asked, and so each channel is
