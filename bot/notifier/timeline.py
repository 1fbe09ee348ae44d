"""An alert or a case as core showed it at one moment, and the threads that its messages go to."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from bot.clearance import SHARED, Subject, may_see
from bot.outbox.models import MessageRecord
from bot.settings import Grouping, Route
from core.models import Action, Alert, Case, Document, Person


@dataclass(frozen=True)
class Thread:
    """A thread by the key of its root message, and its channel."""

    channel: str
    key: str


@dataclass(frozen=True)
class ChannelAccess:
    """Which messages go where, and who sees what there."""

    routes: Mapping[str, Route]  # by channel: which alerts are posted there
    clearance: Callable[[str], int | None]  # of a channel; None: it isn't in the settings
    is_known: Callable[[str], bool]  # whether Slack has told about the channel, or it isn't in the settings
    changed: asyncio.Event  # set after each refresh of the channels, and when a message was held back
    person: Callable[[str, str], Awaitable[Person | None]]  # by team and Slack user
    command: str  # such as /responder
    groupings: Mapping[str, Grouping]  # by channel: which alerts share a card there
    mentions: Mapping[str, Mapping[int, str]]  # by channel and severity: who, in Slack
    workspace_url: Callable[[], str]  # such as https://soc.slack.com/
    team: Callable[[], str]  # of Slack, where the app is installed
    slack_user: Callable[[str, str], Awaitable[str]]  # by team and login; "" if nobody is linked

    def mention(self, channel: str, severity: int) -> list[str]:
        """Who is mentioned there about something as severe, or else about what is more severe; nobody without any."""
        by_severity = self.mentions.get(channel, {})
        levels = sorted(by_severity, key=lambda level: (level < severity, level))
        return [by_severity[levels[0]]] if levels else []

    def takes(self, channel: str, tlp: int) -> bool:
        """Whether what is new with this TLP is posted there; another company isn't to learn that there is something."""
        return self.clearance_of(channel) != SHARED or may_see(SHARED, tlp)

    def is_set_up(self, channel: str) -> bool:
        """Whether it is in the settings still, so that new messages go there."""
        return self.clearance(channel) is not None

    def clearance_of(self, channel: str) -> int:
        """A channel that was taken out of the settings may show nothing any more."""
        return self.clearance(channel) or 0


@dataclass
class Timeline:
    """A root (an alert or a case) with what core said of it, and the threads that show it."""

    document: Document
    threads: list[Thread] = field(default_factory=list)

    @property
    def root_id(self) -> str:
        return self.document.id

    @property
    def alert(self) -> Alert | None:
        """None if the root is a case, or doesn't exist any more."""
        return self.document.alert

    @property
    def case(self) -> Case | None:
        """None if the root is an alert, or doesn't exist any more."""
        return self.document.case

    @property
    def ids(self) -> set[str]:
        """Ids of all that the document has."""
        document = self.document
        artifacts = [*document.artifacts, *(document.alert.artifacts if document.alert else ())]
        parts = {part.id for part in (*document.tasks, *document.logs)} | {part.id for part in artifacts}
        return {document.id, *document.unreadable} | parts | {action.id for action in document.actions}

    def action(self, action_id: str) -> Action | None:
        """An action of the document; None if it isn't there."""
        return next((action for action in self.document.actions if action.id == action_id), None)

    def is_in_bulk(self, action: Action) -> bool:
        """Whether an action is one of a bulk, or undoes one."""
        undone = self.action(action.undoes) if action.undoes else None
        return bool(action.bulk or (undone is not None and undone.bulk))

    def target(self, action: Action) -> Subject:
        """What an action ran on; of what can't be read nothing is shown."""
        return Subject.of_action(action, self.document)


def ids_in(message: MessageRecord) -> set[str]:
    """Ids of what a message is about, to ask core for."""
    named = {message.root_id, message.key.split(":")[1], message.about.partition(" ")[2]}
    return {object_id for object_id in named if object_id.startswith("~")}
