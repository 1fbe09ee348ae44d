"""Renders the messages that tell how far a bulk is, and ask for its approval."""

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from bot.block_kit import notices
from bot.block_kit.elements import to_read
from bot.block_kit.text import mentions
from bot.clearance import CLEAR, SHARED, RedactedView, Subject, side_by_side
from bot.features.approvals import views as approvals
from bot.features.bulks.views import messages, more_time, states
from bot.features.bulks.views.states import Listed, Refused
from bot.features.runs.views import runs, undo_state
from bot.notifier.asking import LATELY_MS, Asking
from bot.notifier.isolation import isolated
from bot.notifier.renderer import Renderer, undone_with_others
from bot.notifier.timeline import ChannelAccess
from bot.outbox.models import (
    BULK,
    BULK_MOVED,
    BULK_TOLD,
    BULK_UNDONE,
    DesiredMessage,
    MessageRecord,
    bulk_key,
    is_person,
)
from bot.outbox.outbox import MessageOutbox
from core.common.clock import MINUTE_MS
from core.common.grouping import grouped
from core.models import Action, BulkCounts, BulkTarget, Document, Extension, Person, SlackUsers, parse_id

if TYPE_CHECKING:
    from core.client import CoreClient


END = f"{BULK}end"  # of the reply that tells how it ended, which is read with its message
LATE = f"{BULK}late"  # of what tells its thread, and who is to know, that some could not be undone


class _Found(list[tuple[Action, Subject]]):
    """Runs of a bulk, each with what it is on, and likewise its targets that core refused; and what was told of it.

    `told_elsewhere`: runs that were undone with those of another bulk, each with who hears it in that one's message.
    `able`: by run that waits who may decide on it. `undone_by`: who began each run that undoes some.
    """

    refused: Sequence[tuple[BulkTarget, Subject]] = ()
    told: Sequence[MessageRecord] = ()
    told_elsewhere: AbstractSet[tuple[str, str]] = frozenset()
    able: Mapping[str, Sequence[SlackUsers]] = MappingProxyType({})
    undone_by: Mapping[str, str] = MappingProxyType({})

    def told_here(self, listed: Listed, login: str) -> Listed:
        """Those that, if they were undone, this person hears of in the messages of their own bulk."""
        return [one for one in listed if (one[0].id, login) not in self.told_elsewhere]

    def deciders(self, listed: Iterable[tuple[Action, Subject, Extension | None]]) -> list[str]:
        """Who may decide on those of these that wait; logins."""
        waiting = [run.id for run, _, end in listed if states.waits(run, end)]
        return list(dict.fromkeys(one.login for id_ in waiting for one in self.able.get(id_, ())))


class BulkMessages:
    """Renders them from counts, which name no object.

    A direct message names the first objects that wait for its reader's decision and what became of the others, and each
    message what was denied or failed and why; it then belongs to the bulk (`root_id`). What changes one of these comes
    with its bulk, so that it is rendered again.

    There is one where somebody asked for the bulk in Slack, in each channel that shows what waits for approval, and
    for each person who is asked to decide. In a channel replies in its thread ask for that, and tell how it ended.
    """

    def __init__(
        self,
        core: "CoreClient",
        outbox: MessageOutbox,
        access: ChannelAccess,
        renderer: Renderer,
    ) -> None:
        self._core = core
        self._outbox = outbox
        self._access = access
        self._renderer = renderer
        self._as_of: dict[str, int] = {}  # by bulk: the newest event that its message reflects

    async def are_current(self, bulk: BulkCounts, documents: Sequence[Document]) -> bool:
        """Whether no message of a bulk need change after a page without its runs, with these documents."""
        posted = await self._outbox.messages_of(bulk.id)
        is_asked = bulk.awaiting or bulk.later_ends  # and what asks says too what became of its alerts
        return not is_asked and all(_is_current(one, bulk, document) for one in posted for document in documents)

    async def of(
        self, bulk: BulkCounts, as_of: int, destinations: Mapping[str, float], asking: Asking, *, has_run: bool
    ) -> list[DesiredMessage]:
        """The messages of a bulk there, and where it has some unless they reflect more than `as_of` already.

        `destinations` are channels, `team:user` for direct messages, and user groups that are mentioned, each with how
        urgent it is there. When it is new and waits for approval, that asks them. Unless it `has_run`, only what names
        its objects may have changed.
        """
        posted = {one.key: one.root_id for one in await self._outbox.messages_named(f"{BULK}:{bulk.id}:")}
        asks = [one.key for one in await self._outbox.messages_named(f"{BULK}ask:{bulk.id}:")]
        found = await self._found(bulk, posted)
        asked_later = {one: urgency for one, urgency in destinations.items() if "~" in one}
        asked_now = {one: urgency for one, urgency in destinations.items() if one not in asked_later}
        goes_to, replies = [*asked_now], list[DesiredMessage]()
        people = {_user(key) for key in posted if is_person(_user(key))}  # also who asked in one
        was_asked = bool(asks or (people and people - {await self._renderer.slack_user(bulk.created_by)}))
        if bulk.awaiting:
            goes_to, replies = await self._asked(bulk, asked_now, asking, was_asked=was_asked, has_run=has_run)
        more_time, in_threads = await self._more_time(bulk, found, [*posted, *asks], asked_later, asking)
        new = dict.fromkeys(bulk_key(bulk.id, destination) for destination in [*goes_to, *more_time])
        keys = self._due(bulk, as_of, posted, new, has_run=has_run)
        rendered = [message for key in keys for message in await self._messages(key, bulk, found)]
        told = await self._told_to_people(bulk, found, asking, was_asked=was_asked, has_run=has_run)
        return [*rendered, *replies, *in_threads, *told]

    async def _asked(
        self, bulk: BulkCounts, destinations: Mapping[str, float], asking: Asking, *, was_asked: bool, has_run: bool
    ) -> tuple[list[str], list[DesiredMessage]]:
        """Where a bulk goes that waits for approval, with those who are asked now, and what says so in threads."""
        channels = [one for one in destinations if not _is_asked(one)]
        asked = {} if was_asked else {one: urgency for one, urgency in destinations.items() if _is_asked(one)}
        direct, who = await self._rung(asked, asking, bulk.id)
        if was_asked or not has_run:
            return [*channels, *direct], []
        replies = [await self._ask(bulk, one, who, asking, is_asked=bool(asked)) for one in channels]
        asking.remind(f"{BULK}:{bulk.id}", bulk.created_at, bulk.expires_at or bulk.created_at)
        return [*channels, *direct], replies

    def _due(
        self, bulk: BulkCounts, as_of: int, posted: Mapping[str, str], new: Iterable[str], *, has_run: bool
    ) -> list[str]:
        """The keys of its messages to render: the `new`, and those that are `posted`, unless these reflect more."""
        if as_of < self._as_of.get(bulk.id, 0):
            return [key for key in new if key not in posted]
        self._as_of.pop(bulk.id, None)
        return [*dict.fromkeys([*new, *(key for key in sorted(posted) if has_run or posted[key])])]

    async def _told_to_people(
        self, bulk: BulkCounts, found: _Found, asking: Asking, *, was_asked: bool, has_run: bool
    ) -> list[DesiredMessage]:
        """The direct messages that tell what became of it, and those that count it among other requests."""
        is_over = not states.open_runs(bulk) and (was_asked or bool(bulk.outcomes or found.told))
        told = await self._told_in_part(bulk, found, asking if has_run else None)
        due = [kind for kind, is_due in ((BULK_TOLD, is_over), (BULK_UNDONE, bulk.undone)) if is_due]
        kinds = [kind for kind in due if has_run or await self._outbox.messages_named(f"{kind}:{bulk.id}:")]
        told += await self._told(kinds, bulk, found) if kinds else []
        told += [*await self._moved(bulk, found), *await self._not_undone(bulk, found)]
        counting = [one for one in await self._outbox.messages_of(bulk.id) if one.key.startswith("asks:")]
        return [*told, *[await self._counted(one.key, one.counted, bulk, found) for one in counting]]

    async def counted(self, key: str, number: int, bulk_id: str) -> DesiredMessage:
        """The message that counts requests for somebody, this bulk the worst of them."""
        bulk = await self._core.bulk(bulk_id)
        return await self._counted(key, number, bulk, await self._found(bulk, ()))

    async def _counted(self, key: str, number: int, bulk: BulkCounts, found: _Found) -> DesiredMessage:
        """Likewise, with its runs as far as they decide on them."""
        _, since, team, user = key.split(":")
        content = partial(notices.counted, number, int(since), int(since) + LATELY_MS, self._access.command)
        person = await self._renderer.recipient(team, user)
        waiting = [(run, on) for run, on in found if runs.awaits_approval(run)]
        own = _Found((run, on) for run, on in waiting if person and approvals.may_decide(run, person, on))
        if person is None or not own:
            return DesiredMessage(key, user, content(), counted=number)
        (seen, _), buttons = _seen(own, person.clearance), await self._outbox.buttons.prepare(user, key)
        shown = content(messages.push_text(bulk, seen), [approvals.bulk_request(seen, buttons)])
        return _naming(DesiredMessage(key, user, shown, buttons=buttons, counted=number), bulk, seen)

    async def _more_time(
        self, bulk: BulkCounts, found: _Found, posted: Sequence[str], asked: Mapping[str, float], asking: Asking
    ) -> tuple[list[str], list[DesiredMessage]]:
        """Where requests for more time go that are new, or once they are over, and what says so in threads."""
        destinations, replies, known = list[str](), list[DesiredMessage](), set(map(_request, posted))
        channels = {_user(key): None for key in posted if not is_person(_user(key))}
        for request, of_request in states.by_request(found).items():
            extensions = [extension for *_, extension in of_request]
            waiting = [one for one in extensions if one.outcome is None]
            if not waiting:
                user = await self._renderer.slack_user(extensions[0].asked_by)
                is_news = user and states.has_news(of_request, _rang(found.told, request))
                destinations += [f"{self._access.team()}:{request}:{user}"] if is_news else []
                asks = [key for key in posted if key.startswith(f"{BULK}ask:{bulk.id}:{request}:")]
                replies += [one for key in asks for one in await self._messages(key, bulk, found)]
            elif request not in known:
                able = {one: urgency for one, urgency in asked.items() if request in one.split(":")}
                direct, who = await self._rung(able, asking)
                about = bulk.model_copy(update={"severity": max(on.severity for _, on, _ in of_request)})
                for channel in channels:
                    replies.append(await self._ask(about, channel, who, asking, is_asked=bool(able), request=request))
                destinations += direct
                expires_at = min(one.approval.expires_at for one in waiting)
                asking.remind(f"{BULK}:{bulk.id}", waiting[0].asked_at, expires_at)
        return destinations, replies

    async def _rung(self, asked: Mapping[str, float], asking: Asking, bulk_id: str = "") -> tuple[list[str], str]:
        """Who of those who are asked gets a direct message; with these the others, who are mentioned; mrkdwn.

        `bulk_id`: the bulk that a message which counts the request may show.
        """
        team, may_ask = self._access.team(), partial(asking.may_ask, run=(bulk_id, ""))
        rung = [one for one, urgency in asked.items() if await may_ask(_user(one), team, urgency=urgency)]
        direct = [one for one in rung if is_person(_user(one))]
        groups = [_user(one) for one in rung if one not in direct]
        readers = [await self._renderer.recipient(team, _user(one)) for one in direct]
        return direct, mentions(groups, sorted(one.login for one in readers if one))

    async def _ask(
        self, bulk: BulkCounts, channel: str, who: str, asking: Asking, *, is_asked: bool, request: str = ""
    ) -> DesiredMessage:
        """The reply that says in a channel `who` is asked; it mentions without any who the channel mentions."""
        is_broadcast = not is_asked and await asking.may_ask(channel, urgency=bulk.severity or 0)
        who = mentions(self._access.mention(channel, 1)) if is_broadcast else who
        content = messages.ask(self._shown(bulk, channel), who, is_broadcast=is_broadcast, is_later_end=bool(request))
        key = f"{BULK}ask:{bulk.id}:{f'{request}:' if request else ''}{channel}"
        return DesiredMessage(key, channel, content, thread_of=bulk_key(bulk.id, channel))

    def _shown(self, bulk: BulkCounts, channel: str) -> BulkCounts:
        """Another company reads in a shared channel not even how severe an alert is that it may not see."""
        is_shared = not is_person(channel) and self._access.clearance_of(channel) == SHARED
        return bulk.model_copy(update={"severity": None}) if is_shared else bulk

    async def remind(self, bulk_id: str, asking: Asking) -> list[DesiredMessage]:
        """The message once more for those who were asked, since half of the time is over."""
        posted = [message.key for message in await self._outbox.messages_named(f"{BULK}:{bulk_id}:")]
        bulk = await self._core.bulk(bulk_id)
        own = await self._renderer.slack_user(bulk.created_by)
        first = [key.rpartition(":") for key in posted if is_person(_user(key)) and ":again:" not in key]
        again = [f"{before}:again:{user}" for before, _, user in first if user != own]
        may_ask = partial(asking.may_ask, urgency=bulk.severity or 0)
        asked = [key for key in again if await may_ask(_user(key), key.split(":")[2])]
        await self._outbox.upsert(*await self.read(asked, only_waiting=True))  # the others say who was
        return await self.read([key for key in posted if asked], only_waiting=True)

    async def _reminded(self, bulk: BulkCounts, reader: Person | None) -> str:
        """Who was asked once more, for who asked and the channel."""
        posted = await self._outbox.messages_named(f"{BULK}:{bulk.id}:")
        again = [one.channel for one in posted if ":again:" in one.key and not _request(one.key)]
        found = [await self._renderer.recipient(self._access.team(), user) for user in again]
        logins = sorted(one.login for one in found if one and (reader is None or reader.login == bulk.created_by))
        return approvals.reminded(logins, is_answered=bulk.awaiting < sum(bulk.counts.values()))

    async def _told(self, kinds: Container[str], bulk: BulkCounts, found: _Found) -> list[DesiredMessage]:
        """The direct messages that tell its end, and its undos to whoever is notified of them.

        Only the last one to each person says what became of all.
        """
        of_undos, desired = await self._outbox.messages_named(f"{BULK_UNDONE}:{bulk.id}:"), list[DesiredMessage]()
        about, told = f"{bulk.id}:{self._access.team()}:", found.told
        posted = {one.key: float(one.ts or "inf") for one in (*told, *of_undos)}
        found = found or await self._read(bulk.id)
        hear_end = _hear_of_end(bulk, found, told) if BULK_TOLD in kinds else []
        hear_undos = [login for run, _ in found for login in undo_state.notified(run.undone_by, run)]
        for login in dict.fromkeys([bulk.created_by, *hear_end, *hear_undos]):
            user, person = await self._renderer.recipient_of(login)
            if person is None:
                continue
            listed, refused = _seen(found, person.clearance)
            ended = messages.undone(bulk, found.told_here(listed, login), login) if BULK_UNDONE in kinds else []
            of_each = _of_undos(f"{BULK_UNDONE}:{about}", user, posted, ended)
            if login in hear_end or f"{BULK_TOLD}:{about}{user}" in posted:
                of_each = {f"{BULK_TOLD}:{about}{user}": (), **of_each}
            last = max(reversed(of_each), key=lambda key: posted.get(key, math.inf), default="")
            for key, undone in of_each.items():
                buttons = await self._outbox.buttons.prepare(user, key)
                content = messages.ended_for(bulk, listed, refused, undone, login, buttons)
                content = content if key == last else messages.see_below(bulk, undone)
                desired.append(_naming(DesiredMessage(key, user, content, buttons=buttons), bulk, listed, refused))
        return desired

    async def _moved(self, bulk: BulkCounts, found: _Found) -> list[DesiredMessage]:
        """The direct messages to whoever is notified that somebody else moved the ends of some: one for all at once."""
        team, desired = self._access.team(), list[DesiredMessage]()
        found_by = ((who, (run, on)) for run, on in found for who in _hear_of_move(run))
        for (at, login), on in grouped(found_by).items():
            user, person = await self._renderer.recipient_of(login)
            if person is not None:
                key = f"{BULK_MOVED}:{bulk.id}:{team}:{at}:{user}"
                listed, _ = _seen(_Found(on), person.clearance)
                moved = [(run, view, run.undo.changed) for run, view in listed if run.undo and run.undo.changed]
                buttons = await self._outbox.buttons.prepare(user, key)
                message = DesiredMessage(key, user, messages.moved(bulk, moved, buttons), buttons=buttons)
                desired.append(_naming(message, bulk, listed))
        return desired

    async def _not_undone(self, bulk: BulkCounts, found: _Found) -> list[DesiredMessage]:
        """The direct messages to who asked for some whose undo failed, approved them last, or began it."""
        about = f"{LATE}:{bulk.id}:{self._access.team()}:"
        posted = [one.key for one in await self._outbox.messages_named(about)]
        failed = _Found(one for one in found if one[0].undo is not None and one[0].undo.status == "failed")
        desired = {key: DesiredMessage(key, _user(key), messages.late(bulk)) for key in posted}
        undos = [found.undone_by.get((run.undo and run.undo.action_id) or "", run.created_by) for run, _ in failed]
        approved_by = [login for run, _ in failed for login in run.approved_by[-1:]]
        for login in dict.fromkeys([*undos, *approved_by, *(run.created_by for run, _ in failed)]):
            user, person = await self._renderer.recipient_of(login)
            if person is not None:
                (listed, _), key = _seen(failed, person.clearance), f"{about}{user}"
                buttons = await self._outbox.buttons.prepare(user, key)
                message = DesiredMessage(key, user, messages.not_undone(bulk, listed, buttons), buttons=buttons)
                desired[key] = _naming(message, bulk, listed)
        return [*desired.values()]

    async def _told_in_part(
        self, bulk: BulkCounts, found: _Found, asking: Asking | None = None
    ) -> list[DesiredMessage]:
        """What tells who asked that somebody decided on some while others wait: those `told` before, and new ones.

        There is one at the first approval, and one at the first denial unless that was told with it.
        """
        desired, team = list[DesiredMessage](), self._access.team()
        for request in ("", *states.by_request(found)) if found else ():
            listed = states.asked(found, request)
            asked_by = listed[0][2].asked_by if listed[0][2] else bulk.created_by
            user, person = await self._renderer.recipient_of(asked_by)
            about = f"{BULK_TOLD}:{bulk.id}:{team}:{request or bulk.id}:"
            if person is None:
                continue
            keys = [one.key for one in found.told if one.key.startswith(about)]
            has_end = states.has_news(listed, _rang(found.told, request or bulk.id))
            new = [how for how in messages.decided_in_part(listed) if asking and not any(how in key for key in keys)]
            if new and asking and await asking.may_ask(user):
                keys.append(f"{about}{'+'.join(new)}:{user}")
            views = states.asked(_seen(found, person.clearance)[0], request)
            for key in keys:
                buttons = await self._outbox.buttons.prepare(user, key)
                how = [one for one in states.DECISIONS if one in key]
                content = messages.told_in_part(bulk, views, how, found.deciders(listed), buttons, has_end=has_end)
                message = DesiredMessage(key, user, content, buttons=buttons)
                desired.append(_naming(message, bulk, [one[:2] for one in views]))
        return desired

    async def _found(self, bulk: BulkCounts, keys: Iterable[str]) -> _Found:
        """What its messages name, if they may; nothing where that can't be read."""
        is_named = bulk.awaiting or bulk.later_ends or "denied" in bulk.outcomes or not states.open_runs(bulk)
        told = await self._outbox.messages_named(f"{BULK_TOLD}:{bulk.id}:")
        is_named = is_named or any(map(_request, [*keys, *(one.key for one in told)]))
        found = await isolated(self._read(bulk.id), bulk.id, otherwise=_Found()) if is_named else _Found()
        found.told = told
        return found

    async def _read(self, bulk_id: str) -> _Found:
        """Its runs, on the most severe objects first, and what it was refused."""
        targets, found = (await self._core.bulk(bulk_id)).own_targets, dict[str, tuple[Action | BulkTarget, Subject]]()
        refused = [one for one in targets if one.has_failed and not one.action_id]
        ids, objects = [one.action_id for one in targets if one.action_id], [one.object_id for one in refused]
        elsewhere, able, undone_by = set[tuple[str, str]](), dict[str, Sequence[SlackUsers]](), dict[str, str]()
        async for response in self._core.documents_in_pages([*ids, *filter(parse_id, dict.fromkeys(objects))]):
            for document in response.documents:
                elsewhere |= undone_with_others(document, bulk_id)
                able |= document.may_decide
                undone_by |= {one.id: one.created_by for one in document.actions if one.undoes in ids}
                for id_, (one, subject) in _in_document(document, ids, refused).items():
                    # In an alert and in its case: the higher level counts.
                    if subject and (id_ not in found or found[id_][1].clearance < subject.clearance):
                        found[id_] = one, subject
        every = sorted(found.values(), key=lambda one: -one[1].severity)
        runs = _Found((one, subject) for one, subject in every if isinstance(one, Action))
        runs.told_elsewhere, runs.able, runs.undone_by = elsewhere, able, undone_by
        runs.refused = [(one, subject) for one, subject in every if isinstance(one, BulkTarget)]
        return runs

    def followed(self, last: int) -> None:
        """The feed was followed up to this event: what is asked for from now on is newer."""
        self._as_of = {bulk: as_of for bulk, as_of in self._as_of.items() if as_of > last}

    async def read(
        self, keys: Iterable[str], *, by_person: bool = False, only_waiting: bool = False
    ) -> list[DesiredMessage]:
        """The messages with these keys, as core has their bulks now; `only_waiting` of those that wait for approval.

        Raises ResponderBotError without core's answer.
        """
        of_bulk = grouped((key.split(":")[1], key.replace(END, BULK, 1)) for key in keys)
        desired = list[DesiredMessage]()
        async for response in self._core.documents_in_pages(of_bulk):
            for bulk in response.bulks:
                self._as_of[bulk.id], found = response.as_of, await self._found(bulk, of_bulk[bulk.id])
                for key in of_bulk[bulk.id]:
                    if key.partition(":")[0] in (kinds := (BULK_TOLD, BULK_UNDONE, BULK_MOVED, LATE)):
                        told = [*await self._told(kinds, bulk, found), *await self._told_in_part(bulk, found)]
                        told += [*await self._moved(bulk, found), *await self._not_undone(bulk, found)]
                        desired += [one for one in told if one.key == key]
                    elif not only_waiting or states.waiting(found, _request(key)):
                        desired += await self._messages(key, bulk, found, by_person=by_person)
        return desired

    async def _messages(
        self, key: str, bulk: BulkCounts, found: _Found, *, by_person: bool = False
    ) -> list[DesiredMessage]:
        """The message for one destination, and in a channel the replies in its thread."""
        channel, request = _user(key), _request(key)
        person = await self._renderer.recipient(key.split(":")[2], channel) if is_person(channel) else None
        if (is_person(channel) and person is None) or (request and not found):
            return []

        buttons = await self._outbox.buttons.prepare(channel, key)
        clearance = person.clearance if person else self._access.clearance_of(channel)
        views, refused = _seen(found, clearance)
        named, later = states.visible(views), states.by_request(views)
        of_request = later.get(request, [])
        if request:
            content = more_time.request(bulk, of_request, person, button=buttons)
            views, refused = [one[:2] for one in of_request], []
        else:
            shown, said = self._shown(bulk, channel), await self._reminded(bulk, person)
            able = found.deciders(states.asked(found, "")) if person else ()
            progress = partial(messages.progress, button=buttons, reader=person, reminded=said, able=able)
            content = progress(shown, named, refused, later)
        if clearance == SHARED:
            content = replace(content, blocks=to_read(content.blocks))
        thread = "" if person or not request else bulk_key(bulk.id, channel)
        message = DesiredMessage(key, channel, content, thread, by_person=by_person, buttons=buttons)
        message = replace(message, is_progress=states.under_way(bulk) + bulk.undoing > 0 and not request)
        if ":again:" in key:
            decided = () if request else content.blocks[:1]
            times = [one.approval.expires_at for *_, one in of_request if not one.outcome]
            at = min(times, default=bulk.expires_at or 0)
            message = await self._renderer.in_short(message, key.replace(":again:", ":"), at, decided)
        replies = [] if person or request else await self._replies(key, bulk, named, views)
        return [_naming(message, bulk, views, refused), *replies]

    async def _replies(self, key: str, bulk: BulkCounts, named: Listed, views: Listed) -> list[DesiredMessage]:
        """The replies to its message in a channel: how it ended, and that some could not be undone."""
        channel, replies = _user(key), list[DesiredMessage]()
        if not states.open_runs(bulk) and bulk.counts:
            end = DesiredMessage(f"{END}:{bulk.id}:{channel}", channel, messages.ended(bulk, named), thread_of=key)
            replies.append(_naming(end, bulk, views))
        if bulk.not_released or await self._outbox.messages_named(f"{LATE}:{bulk.id}:"):
            late = messages.late(bulk)
            replies.append(DesiredMessage(f"{LATE}:{bulk.id}:{channel}", channel, late, thread_of=key))
        return replies


def _in_document(
    document: Document, ids: Container[str], refused: Iterable[BulkTarget]
) -> Mapping[str, tuple[Action | BulkTarget, Subject | None]]:
    """The runs with these ids that it has, and what was refused there, each with what that is on."""
    on = {one.id: (one, Subject.of_action(one, document)) for one in document.actions if one.id in ids}
    named = {
        " ".join([one.object_id, *one.target]): (one, Subject.in_document(document, one.object_id)) for one in refused
    }
    return {**on, **named}


def _hear_of_end(bulk: BulkCounts, found: _Found, told: Iterable[MessageRecord]) -> list[str]:
    """Who asked for it, unless its end is no news after what they were `told`, and who approved what failed last."""
    has_news = states.has_news(states.asked(found, ""), _rang(told, bulk.id))
    of_failures = [login for run, _ in found if run.outcome == "failed" for login in run.approved_by[-1:]]
    return [*([bulk.created_by] if has_news else []), *of_failures]


def _hear_of_move(run: Action) -> list[tuple[str, str]]:
    """Who is notified that somebody else moved its end, each with the request for several, or the minute, of that.

    Who approved that knows.
    """
    changed = run.undo.changed if run.undo is not None else None
    if changed is None:
        return []
    approved = (one for one in run.extensions if one.outcome == "approved" and one.at == changed.after)
    of = next((one.request for one in approved), None) or f"{changed.at // MINUTE_MS}{notices.mark_of(changed.by)}"
    hear = undo_state.notified(changed.by, run, is_end=False)
    return [(of, login) for login in hear if login not in run.more_time_by]


def _of_undos(about: str, user: str, posted: Iterable[str], ended: Listed) -> dict[str, Listed]:
    """What each message tells somebody of these runs that others undid, by its key: one more if more are."""
    if not ended:
        return {}
    keys = [key for key in posted if key.startswith(about) and _user(key) == user]
    numbers = sorted(
        int(part) for key in keys for part in [key.removeprefix(about).partition(":")[0]] if part.isdigit()
    )
    if len(numbers) < len(keys):  # one of the time before each told what is new
        return dict.fromkeys(keys, ended)
    ends = [*numbers, *([len(ended)] if len(ended) > max(numbers, default=0) else [])]
    return {f"{about}{end}:{user}": ended[start:end] for start, end in zip([0, *ends], ends, strict=False)}


def _seen(found: _Found, clearance: int) -> tuple[Listed, Refused]:
    """Each with what this clearance may see of it, and of what was refused what that was to act on."""
    kinds = {artifact.data_type for run, _ in found for artifact in run.target or ()}

    def asked(one: BulkTarget, on: Subject) -> BulkTarget:
        alike = [artifact.id for artifact in on.artifacts if artifact.data_type in kinds and on.id == on.root_id]
        return one.model_copy(update={"target": one.target or alike})

    every = [*found, *((asked(one, subject), subject) for one, subject in found.refused)]
    seen = side_by_side([(one, RedactedView(subject, clearance)) for one, subject in every])
    return seen[: len(found)], seen[len(found) :]


def _naming(message: DesiredMessage, bulk: BulkCounts, runs: Listed, refused: Refused = ()) -> DesiredMessage:
    """The message, which belongs to its bulk if it names some of these runs or says why one was denied."""
    if not runs:
        return message
    view = RedactedView(Subject("alert", bulk.id, "", CLEAR), runs[0][1].clearance)
    names = [*((run.id, of_run) for run, of_run in runs), *((one.object_id, of_one) for one, of_one in refused)]
    return replace(message, root_id=bulk.id, view=view, fingerprint=" ".join(_withheld(names)))


def _withheld(named: Iterable[tuple[str, RedactedView]]) -> list[str]:
    """What is withheld of each run, or object that was refused, with the alert or case that it is on."""
    return sorted({f"{view.subject.root_id}:{id_}:{replace(view, beside=()).fingerprint[:16]}" for id_, view in named})


def _is_current(message: MessageRecord, bulk: BulkCounts, document: Document) -> bool:
    """Whether the message withholds just what it must of an alert that changed.

    What changes of a case, or of an alert in one, may concern runs on what they share.
    """
    if document.alert is None or document.alert.case:
        return False
    before = [one for one in message.fingerprint.split() if one.startswith(f"{document.id}:")]
    on_it = {run.id: Subject.of_action(run, document) for run in document.actions if run.bulk == bulk.id}
    refused = ((id_, Subject.in_document(document, id_)) for _, id_, _ in (one.split(":") for one in before))
    on_it |= {id_: subject for id_, subject in refused if subject is not None}
    return before == _withheld((id_, RedactedView(subject, message.clearance)) for id_, subject in on_it.items())


def _rang(told: Iterable[MessageRecord], about: str) -> dict[str, float]:
    """By how somebody decided on a part of a bulk, or of a request for more time, when that rang who asked (ms).

    What is not posted yet will tell all there is by then.
    """
    of_it = [one for one in told if one.key.split(":")[3] == about]
    return {how: float(one.ts or "inf") * 1000 for one in of_it for how in states.DECISIONS if how in one.key}


def _request(key: str) -> str:
    """The id of the request for more time for several runs that the message with this key is of, or ""."""
    return next((part for part in key.split(":")[2:] if part.startswith("~")), "")


def _user(destination: str) -> str:
    """The last part of a destination or a key: a channel, a person or a user group."""
    return destination.rpartition(":")[2]


def _is_asked(destination: str) -> bool:
    return _user(destination).startswith("S") or is_person(_user(destination))
