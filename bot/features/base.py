"""What a feature is made of: the context of an interaction, the services it may use, and how it is declared."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from bot.message import Message
from bot.outbox.models import RefreshRequest
from core.common.errors import ResponderBotError
from core.models import Check, Permission, Person

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

    from bot.outbox.outbox import MessageOutbox
    from core.client import CoreClient

Json = Mapping[str, Any]


class Ack(Enum):
    """When Slack gets its acknowledgement, see `bot/docs/slack.md#acknowledging`."""

    READ = "read"  # at once; the handler runs later, from a bounded queue in memory
    WRITE = "write"  # once the interaction is committed to the inbox, which is replayed after a crash
    RESPONSE = "response"  # the handler's return value is the acknowledgement; core has 2 s


@dataclass(frozen=True)
class Services:
    """What features may use; created once by bot.app."""

    slack: "AsyncWebClient"
    outbox: "MessageOutbox"
    core: "CoreClient"  # with the bot's own key, which may only read
    clock_ms: Callable[[], int]
    clearance: Callable[[str], int | None]  # of a channel; None if it isn't in the settings
    login: Callable[[str, str], Awaitable[str]]  # by team and Slack user; "" if nobody is linked
    slack_user: Callable[[str, str], Awaitable[str]]  # by team and login; "" if nobody is linked
    checks: Callable[[], Awaitable[Sequence[Check]]]  # Slack, transport, channels and delivery, for `doctor`
    commands: Mapping[str, "Command"]  # by verb
    command: str  # such as /responder
    alert_days: int  # after their last change core deletes alerts; 0: never
    workspace_url: Callable[[], str]  # such as https://soc.slack.com/


@dataclass(frozen=True)
class Context:
    """One interaction, with everything that a handler needs.

    `linked` is None if the Slack user is not linked to a user of core. `text` is what follows the verb of a command.
    `idempotency_key` is the same for each delivery of one interaction, see `bot/docs/slack.md#idempotency-key`.
    """

    payload: Json
    team: str
    user: str
    channel: str
    text: str
    linked: Person | None
    ended: str  # what core says of somebody whose access was ended; "" of any other
    core: "CoreClient"  # on behalf of that person
    services: Services
    idempotency_key: str
    respond: Callable[[Message], Awaitable[None]]  # visible only to the person
    show: Callable[[str, Message], Awaitable[None]]  # with a title in a modal, else as `respond`
    replace_original: Callable[[Message | None], Awaitable[None]]  # of the ephemeral clicked; None deletes it
    show_modal: Callable[[Json], Awaitable[None]]  # opens a modal with the trigger; later calls update it
    opened_here: Callable[[Json], dict[str, Any]]  # the modal, noting whether it was opened from the App Home
    message_ts: str  # of the message that was clicked
    thread_ts: str
    refresh_requests: list[RefreshRequest]  # stored once the handler has ended
    core_problem: str  # "", or a sentence where core didn't answer who this is; see Entry.works_without_core
    asks: bool = False  # before each run, as its alert was found and not named

    @property
    def person(self) -> Person:
        """Who asks. Public entries, and those that work without core, use `linked`."""
        if self.linked is None:
            raise ResponderBotError("forbidden", "You're not linked yet.")
        return self.linked

    def refresh(self, root_id: str, also: str = "") -> None:
        """Show the person the alert or case as it is now, ahead of what events cause; with `also` that message too.

        The messages must reflect what this interaction changed in core. If it changed nothing, they are rendered again.
        """
        self.refresh_requests.append(RefreshRequest(root_id, also, after=self.core.last_event))


Handler = Callable[[Context], Awaitable[Json | None]]


@dataclass(frozen=True)
class Entry:
    """A handler and how its interactions are acknowledged.

    With `is_public` people who are not linked may use it, in any channel. `modal_title` is set if the handler opens a
    modal: it opens as a skeleton with this title while core is slow. With `works_without_core` the handler also runs
    while core doesn't answer; then `linked` is None, and `core_problem` says so.
    """

    handler: Handler
    ack: Ack = Ack.READ
    is_public: bool = False
    modal_title: str = ""
    works_without_core: bool = False


@dataclass(frozen=True)
class Command:
    """A verb of the slash command, and its line in `help`."""

    entry: Entry
    usage: str
    summary: str
    permission: Permission | None = None


@dataclass(frozen=True)
class Feature:
    """One thing that people can do, with its entries for each interaction type."""

    commands: Mapping[str, Command] = field(default_factory=dict)
    actions: Mapping[str, Entry] = field(default_factory=dict)  # by action_id
    options: Mapping[str, Entry] = field(default_factory=dict)  # by action_id
    views: Mapping[str, Entry] = field(default_factory=dict)  # submissions, by callback_id
    shortcuts: Mapping[str, Entry] = field(default_factory=dict)  # by callback_id
    events: Mapping[str, Entry] = field(default_factory=dict)  # by event type
