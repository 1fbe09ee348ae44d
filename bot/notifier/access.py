"""The messages about requests for access: cards for admins, and a message to the person."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from bot.features.access_requests import views as access_requests
from bot.identity import admins
from bot.notifier.isolation import isolated
from bot.outbox import DesiredMessage, MessageOutbox
from core.models import AccessRequest

if TYPE_CHECKING:
    from core.client import CoreClient


class AccessMessages:
    """Renders them from what core says of a request now; the same as before changes nothing."""

    def __init__(self, core: "CoreClient", outbox: MessageOutbox, channel: Callable[[], str], command: str) -> None:
        """`channel` gives the channel in which admins decide; "" for direct messages to them."""
        self._core = core
        self._outbox = outbox
        self._channel = channel
        self._command = command

    async def of(self, request_id: str) -> list[DesiredMessage]:
        """The messages that the events of a request change."""
        return await self._render(await self._core.access_request(request_id), has_changed=True)

    async def of_all(self) -> list[DesiredMessage]:
        """The messages about requests that wait or have cards, such as after a restored backup or a gap of the feed."""
        desired: list[DesiredMessage] = []
        for request in await self._core.access_requests():
            desired += await isolated(self._render(request, has_changed=False), request.id, otherwise=[])
        return desired

    async def _render(self, request: AccessRequest, *, has_changed: bool) -> list[DesiredMessage]:
        cards = await self._outbox.messages_named(f"access:{request.id}:")
        posted = {message.key: message.channel for message in cards}
        if request.status == "pending":
            posted = posted or await self._recipients(request)
        desired = [await self._message(key, channel, request) for key, channel in posted.items()]
        if request.status != "pending" and (posted or has_changed):
            key, content = (
                f"told:{request.id}:{request.team}:{request.slack_user}",
                access_requests.decision(request, self._command),
            )
            desired.append(DesiredMessage(key, request.slack_user, content, by_person=True))
        return desired

    async def _recipients(self, request: AccessRequest) -> dict[str, str]:
        """Key and channel of each card: one in the channel for requests, else one to each admin in Slack."""
        channel = self._channel()
        if channel:
            return {f"access:{request.id}:{channel}": channel}
        users = admins(await self._core.users(), request.team)
        return {f"access:{request.id}:{request.team}:{user}": user for user in users}

    async def _message(self, key: str, channel: str, request: AccessRequest) -> DesiredMessage:
        buttons = await self._outbox.buttons.prepare(channel, key)
        return DesiredMessage(key, channel, access_requests.card(request, buttons), by_person=True, buttons=buttons)
