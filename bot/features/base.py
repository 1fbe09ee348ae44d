"""What every feature works with: the moment somebody did something, the tools to answer, and how it is declared."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

from bot.cards.message import Message
from core.models import Permission, Person

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

    from bot.outbox.buttons import Buttons
    from bot.outbox.watches import Watches
    from core.client import CoreClient

Json = Mapping[str, Any]


class Ack(Enum):
    """When Slack gets its acknowledgement (`slack.md 2`)."""

    READ = "read"  # at once; the work comes from a bounded queue in memory
    WRITE = "write"  # once committed to the inbox (replayed at start) or accepted by core; a repeat must start nothing
    ANSWER = "answer"  # the handler's return value is the acknowledgement; core has 2 s


class PostedMessage(Protocol):
    """A message of ours in Slack."""

    @property
    def subject(self) -> str:
        """The alert or case whose story it belongs to; may be empty."""
        ...


class Outbox(Protocol):
    """What features use of bot.outbox."""

    @property
    def buttons(self) -> "Buttons": ...

    @property
    def watches(self) -> "Watches": ...

    async def subjects(self, channel: str, limit: int) -> Sequence[str]:
        """Ids of the alerts and cases with a card in this channel, newest first."""
        ...

    def message_at(self, channel: str, ts: str) -> "PostedMessage | None":
        """Our message with this `ts` in a channel."""
        ...


class Refresh(Protocol):
    """Repaints the cards of an alert or case now, before machine news; with a log's id its card as well."""

    async def __call__(self, root_id: str, log_id: str = "") -> None: ...


@dataclass(frozen=True)
class Check:
    """One line of `doctor`: what was looked at, whether it is well, and what to do if not."""

    name: str
    ok: bool
    message: str
    is_vital: bool = False
    """Without it nothing works."""


@dataclass(frozen=True)
class Services:
    """What a feature may use; made once by bot.app."""

    slack: "AsyncWebClient"
    mail: Outbox
    core: "CoreClient"  # the bot's own key: may only read
    clock_ms: Callable[[], int]
    clearance: Callable[[str], int | None]  # of a channel; None: not in the settings
    repaint: Refresh
    download: Callable[[str], Awaitable[bytes]]  # an uploaded file by its url_private; raises ResponderBotError
    checks: Callable[[], Awaitable[Sequence[Check]]]  # Slack, socket, channels, delivery problems, for `doctor`
    command: str = "/responder"


@dataclass(frozen=True)
class Context:
    """Somebody did something in Slack. `person` is None when nobody in core is linked to them.

    `text` is what follows the verb of a command. `key` is the material of the Idempotency-Key (`slack.md 2`).
    """

    payload: Json
    team: str
    user: str
    channel: str
    text: str
    trigger_id: str
    response_url: str
    person: Person | None
    core: "CoreClient"  # as that person
    tools: Services
    key: str
    say: Callable[[Message], Awaitable[None]]  # answers only the person: in the ack, by response_url, or postEphemeral
    replace: Callable[[Message | None], Awaitable[None]]  # replaces (None: removes) the ephemeral that was clicked
    show: Callable[[Json], Awaitable[None]]  # opens a modal by the trigger; called again it changes that one
    message_ts: str = ""  # the message that was clicked
    thread_ts: str = ""


Handler = Callable[[Context], Awaitable[Json | None]]


@dataclass(frozen=True)
class Entry:
    """A handler and how it is acknowledged. `anyone`: also for people who are not linked, in any channel.

    `opens`: the title of the modal that it shows, which opens at once as a skeleton when core is slow.
    """

    handler: Handler
    ack: Ack = Ack.READ
    anyone: bool = False
    opens: str = ""


@dataclass(frozen=True)
class Command:
    """A verb of the command, and what `help` says of it."""

    entry: Entry
    usage: str
    summary: str
    permission: Permission | None = None
    mistake: Callable[[str, str], str] = lambda _rest, _command: ""
    """What is wrong with the text after the verb, as a sentence for the acknowledgement (`slack.md 2`); "" if nothing.

    It is told what the whole command is called, such as `/responder`.
    """


@dataclass(frozen=True)
class Feature:
    """One thing a person can do, on every surface it has."""

    commands: Mapping[str, Command] = field(default_factory=dict)
    actions: Mapping[str, Entry] = field(default_factory=dict)  # by action_id
    options: Mapping[str, Entry] = field(default_factory=dict)  # by action_id
    views: Mapping[str, Entry] = field(default_factory=dict)  # submissions, by callback_id
    shortcuts: Mapping[str, Entry] = field(default_factory=dict)  # by callback_id
    events: Mapping[str, Entry] = field(default_factory=dict)  # by event type
