"""People who work while an installation is killed, and what must be true of core and Slack in the end."""

import asyncio
import json
import os
import random
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from bot.block_kit import ids
from bot.clearance import Subject
from bot.features.alerts.views import replies
from bot.features.alerts.views.card import alert_card
from bot.features.alerts.views.case_card import MOST_COUNTED, case_card
from bot.features.approvals import views as approvals
from bot.features.command_text import find_ids
from bot.features.runs.views.runs import was_decided_against
from bot.slack_emulator import SlackEmulator
from bot.slack_emulator.elements import all_blocks
from bot.slack_emulator.person import Refused
from core.client import CoreClient
from core.common.clock import now_ms
from core.common.errors import ResponderBotError
from core.models import TLP_NAMES, Action, Log
from tests.bot.chaos import CHANNELS, LOGS, MANY, ON_ALERTS, SOURCES, Installation
from tests.bot.people import Person, button_of, card_of, menu_block, text_of
from tests.bot.running import ALERT, ANNA, BEN, LEA

T = TypeVar("T")
Json: TypeAlias = dict[str, Any]

AMBER = TLP_NAMES.index("amber")
CASE_EVERY = 3
"""One alert of so many becomes a case."""
TAGGING = ("Quick", "Slow", "Approved", "Confirmed")
SLACK_CALLS = ("chat.postMessage", "chat.update", "files.getUploadURLExternal", "files.completeUploadExternal")
AT_ONCE = 6
PAUSE_S = 0.2
ALERT_S = 2.0
QUIET_S = 75.0
"""For a run to end, and for the next message to change, once nothing is killed any more."""
GIVEN_UP_S = 20.0
RECEIPT_S = 10.0


@dataclass(frozen=True)
class Request:
    """What one analyst asks for once, and never again: a responder on an object."""

    responder: str
    object_id: str
    alert_id: str
    channel: str


@dataclass
class Scene:
    """The people, and what they were told."""

    installed: Installation
    emulator: SlackEmulator
    people: Mapping[str, Person]
    chance: random.Random
    is_together: bool
    """Core and bot are one process, so that the bot never misses core."""
    analysts: Sequence[str] = (ANNA, BEN)
    """Those of `people` who ask for responders; the others decide."""
    kinds: Sequence[str] = ON_ALERTS
    patience_s: float = QUIET_S
    """How long somebody waits for a card."""
    pace_s: float = ALERT_S
    """At most so long from one alert to the next."""
    clients: dict[str, CoreClient] = field(default_factory=dict)
    alerts: dict[str, str] = field(default_factory=dict)
    """Alert id to its channel."""
    requests: list[Request] = field(default_factory=list)
    acknowledged: set[Request] = field(default_factory=set)
    tasks: dict[str, str] = field(default_factory=dict)
    """Case id to the task in it that a responder runs on."""
    decided: dict[str, str] = field(default_factory=dict)
    """Object id to what was decided about Approved there, once that was acknowledged."""

    asking: asyncio.Event = field(default_factory=asyncio.Event)
    """Set whenever somebody clicks or types."""
    _runs_seen: frozenset[str] = frozenset()
    _wanted: dict[str, str] = field(default_factory=dict)
    """Object id to what somebody means to decide about Approved there."""
    _deciding: set[str] = field(default_factory=set)

    # --- the moments to kill at

    async def somebody_asks(self) -> None:
        self.asking.clear()
        await self.asking.wait()

    async def a_message_is_sent(self) -> None:
        await self.traffic_goes_on(self.people[LEA])

    async def traffic_goes_on(self, seen_by: Person, patience_s: float = 30.0) -> None:
        """Wait for the next call or event of Slack's; how many are kept doesn't grow for ever. Raises TimeoutError."""
        last = self.emulator.traffic[-1]
        await seen_by.until(lambda _: self.emulator.traffic[-1] is not last, patience_s)

    async def a_program_runs(self) -> None:
        ran = len(os.listdir(self.installed.counts))
        while len(os.listdir(self.installed.counts)) == ran:  # noqa: ASYNC110 - nothing tells of another process's files
            await asyncio.sleep(0.01)

    async def many_operations_are_applied(self) -> None:
        while not any(name.startswith("Many") for name in self.unseen()):  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.01)
        await asyncio.sleep(self.chance.uniform(0.05, 0.5))

    def unseen(self) -> set[str]:
        """Runs that were counted since the last call."""
        seen, self._runs_seen = self._runs_seen, frozenset(os.listdir(self.installed.counts))
        return set(self._runs_seen - seen)

    # --- as a machine, over HTTP

    async def core(self, user: str, call: Callable[..., Awaitable[T]], *args: Any, **more: Any) -> T:
        """Ask core until it answers; it may be dead at the moment."""
        while True:
            try:
                if url := self.installed.any_core(self.chance):
                    known = self.clients.get(f"{user} {url}")
                    client = self.clients.setdefault(
                        f"{user} {url}", known or CoreClient(url, self.installed.keys[user])
                    )
                    return await call(client, *args, **more)
            except ResponderBotError as error:
                if error.code != "unavailable":
                    raise
            await asyncio.sleep(0.05)

    async def new_alert(self, number: int) -> list[Request]:
        """An alert arrives; gives what is to be asked for on it."""
        which = number % len(SOURCES)
        body = {**ALERT, "source": SOURCES[which], "sourceRef": f"eve-{number}", "title": f"Beacon {number}"}
        name = f"{body['type']};{body['source']};{body['sourceRef']}"
        try:
            await self.core("sensor", CoreClient.create_alert, body)
        except ResponderBotError as error:
            assert error.code == "exists", error  # its first answer was lost
        alert = await self.core("lea", CoreClient.alert, name)
        channel = CHANNELS[which]
        self.alerts[alert.id] = channel
        kinds = self.chance.sample(self.kinds, 4)
        requests = [Request(kind, alert.id, alert.id, channel) for kind in kinds]
        if number % CASE_EVERY == 0:
            case = await self._case_of(alert.id)
            task = await self.core("lea", CoreClient.add_task, case, {"title": f"by hand {case}"})
            self.tasks[case] = task.id  # where an answer was lost there is another one, which nobody uses
            requests += [Request("Many", case, alert.id, channel), Request("Logging", task.id, alert.id, channel)]
        return requests

    async def _case_of(self, alert_id: str) -> str:
        try:
            await self.core("lea", CoreClient.create_case_from_alert, alert_id)
        except ResponderBotError as error:
            assert error.code == "bad_request", error  # its first answer was lost
        return str((await self.core("lea", CoreClient.alert, alert_id)).case)

    async def work(self, is_over: Callable[[], bool]) -> None:
        """Alerts come in and people ask for responders until it is over; all that was begun is finished."""
        at_once, number = asyncio.Semaphore(AT_ONCE), 0
        async with asyncio.TaskGroup() as group:
            while not is_over():
                for request in await self.new_alert(number):
                    await at_once.acquire()
                    asking = group.create_task(self.ask(request))
                    asking.add_done_callback(lambda _: at_once.release())
                    await asyncio.sleep(self.chance.uniform(0, PAUSE_S))
                number += 1
                await asyncio.sleep(self.chance.uniform(0, self.pace_s))

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()

    def refused(self) -> int:
        """How often a person was told that nothing was done, or perhaps nothing, since core was silent."""
        sentences = ("isn't answering", "may have started on", "database can't be used")
        return sum(
            any(words in text_of(message) for words in sentences)
            for person in self.people.values()
            for message in [
                *(m for channel in CHANNELS for m in person.live_view.ephemerals(channel)),
                *person.live_view.earlier_modals,
            ]
        )

    def told_of(self, requests: Collection[Request]) -> list[str]:
        """What people were told where nothing came of these requests, for whoever looks for the reason."""
        return [
            text_of(message)
            for person in self.people.values()
            for message in (
                *(m for c in CHANNELS for m in person.live_view.ephemerals(c)),
                *person.live_view.earlier_modals,
            )
            if any(one.object_id in text_of(message) for one in requests)
        ]

    # --- as people

    async def ask(self, request: Request) -> None:
        """By command, or in the menu of the card. Nobody asks again where Slack says that it failed."""
        who = self.people[self.chance.choice(self.analysts)]
        if self.chance.random() < 0.2:
            self.emulator.faults.deliver_twice("slash_commands")
        if self.chance.random() < 0.2:
            self.emulator.faults.deliver_twice("interactive")
        if self.chance.random() < 0.2:
            self.emulator.faults.lose_answer(self.chance.choice(SLACK_CALLS))
        self.asking.set()
        if request.responder == "Confirmed":
            await self._ask_and_confirm(who, request)
        elif request.object_id == request.alert_id and self.chance.random() < 0.5:
            await self._choose(who, request)
        else:
            await self._command(who, request)

    async def _command(self, who: Person, request: Request) -> None:
        self.requests.append(request)
        answer = await who.command(request.channel, f"/responder run {request.responder}_1_0 {request.object_id}")
        self._note(request, answer)

    def _note(self, request: Request, answer: Mapping[str, Any]) -> None:
        if answer["ok"]:
            self.acknowledged.add(request)

    async def _choose(self, who: Person, request: Request) -> None:
        card = await who.until(card_of(request.alert_id, channel=request.channel), self.patience_s)
        assert card is not None
        while True:
            now = card_of(request.alert_id, channel=request.channel)(who.live_view) or card
            try:
                at = {"action_id": ids.MENU, "block_id": menu_block(now)}
            except StopIteration:  # a closed card has no menu
                await self._command(who, request)
                return
            try:
                groups = await who.options(request.channel, now["ts"], query=request.responder, **at)
                offered = [
                    o["value"] for g in groups for o in g["options"] if o["text"]["text"].startswith(request.responder)
                ]
                if offered:
                    self.asking.set()
                    answer = await who.click(request.channel, now["ts"], value=offered[0], **at)
                    self.requests.append(request)
                    self._note(request, answer)
                    return
            except Refused:  # the app is dead at the moment, or the card has just changed
                pass
            await asyncio.sleep(PAUSE_S)

    async def _ask_and_confirm(self, who: Person, request: Request) -> None:
        text = f"/responder run {request.responder}_1_0 {request.object_id}"
        replaced: set[str] = set()
        on = re.compile(rf"{request.object_id}\b")

        def refused(view: Any) -> set[str]:
            """Where the bot was killed, an ephemeral message asks to type it again."""
            return {m["ts"] for m in view.ephemerals(request.channel) if "Slack opened no window" in m["text"]}

        before = refused(who.live_view)

        def answer_to(view: Any) -> Json | None:
            """The form, which may lie below another one by now."""
            named = [m for m in view.earlier_modals if request.responder in text_of(m) and on.search(text_of(m))]
            forms = [m for m in named if m["callback_id"] == ids.START_VIEW and m["id"] not in replaced]
            return forms[-1] if forms else {"again": True} if refused(view) - before else None

        while True:
            while not (await who.command(request.channel, text))["ok"]:  # noqa: ASYNC110 - a person tries again
                await asyncio.sleep(PAUSE_S)
            try:
                shown = await who.until(answer_to, QUIET_S if self.is_together else GIVEN_UP_S)
            except TimeoutError:
                assert not self.is_together, f"{request} was acknowledged and never answered"
                return
            assert shown is not None
            if "again" in shown:
                before |= refused(who.live_view)
                continue
            self.asking.set()
            try:
                answer = await who.submit(shown["id"], {})
            except Refused:  # a modal that this person asked for elsewhere has just replaced it
                replaced.add(shown["id"])
                continue
            self.requests.append(request)
            self._note(request, answer)
            return

    async def decide(self, who: str = LEA) -> None:
        """For ever: whatever waits for approval is approved, denied or cancelled by somebody else than who asked."""
        person = self.people[who]

        def open_request(view: Any) -> tuple[str, Json, Json] | None:
            for channel in CHANNELS:
                for card in view.messages(channel):
                    for reply in view.thread(channel, card["ts"])[1:]:
                        if ids.APPROVE in text_of(reply) and not {_target(reply)} & {*self.decided, *self._deciding}:
                            return channel, card, reply
            return None

        while True:
            found = await person.until(open_request, 10_000)
            assert found is not None
            channel, card, reply = found
            target, run = _target(reply), button_of(reply, "Deny")["action_id"].partition(":")[2]
            how = self._wanted.setdefault(target, self.chance.choice(("approve", "approve", "deny", "cancel")))
            self._deciding.add(target)
            if await self._decided(person, channel, card, reply, how):
                self.decided[target] = how
                patience_s = GIVEN_UP_S
            else:
                await asyncio.sleep(PAUSE_S)
                patience_s = 0.0
            is_sure = target in self.decided and self.is_together
            if not is_sure and not await self._is_decided(run, patience_s):
                self.decided.pop(target, None)
                self._deciding.discard(target)

    async def _decided(self, who: Person, channel: str, card: Json, reply: Json, how: str) -> bool:
        run = button_of(reply, "Deny")["action_id"].partition(":")[2]
        try:
            now = next((b for b in all_blocks(card) if "*Approved* needs" in text_of({"blocks": [b]})), None)
            if how == "approve":
                await who.click(channel, reply["ts"], action_id=button_of(reply, "Approve")["action_id"])
            elif how == "deny" or now is None:  # the card comes behind its thread, at Slack's rate
                await who.command(channel, f"/responder {how} {run}")
            else:
                withdraw = ids.numbered(ids.WITHDRAW, str(now["block_id"]).removeprefix("run:"))
                await who.click(channel, card["ts"], action_id=withdraw)
            return await self._submitted(who, run, how)
        except (Refused, TimeoutError):
            return False

    async def _submitted(self, who: Person, run: str, how: str) -> bool:
        """Whether the person reads in the modal that they did it: then it is recorded, whatever is killed next."""
        callback_id, said = {
            "approve": (ids.APPROVE_VIEW, "You approved"),
            "deny": (ids.DENY_VIEW, "You denied"),
            "cancel": (ids.DENY_VIEW, "You withdrew"),
        }[how]

        def form(view: Any) -> Json:
            modal = view.modal or {}
            is_form = modal.get("callback_id") == callback_id and f'"id": "{run}"' in modal["private_metadata"]
            return modal if is_form else {}

        view_id = (await who.until(form, RECEIPT_S))["id"]
        await who.submit(view_id, {})

        def is_told(view: Any) -> bool:
            return any(modal["id"] == view_id and said in text_of(modal) for modal in view.modals)

        return await who.until(is_told, RECEIPT_S)

    async def _is_decided(self, run: str, patience_s: float) -> bool:
        """Whether core has a decision on a run by then; it may have been dead when the click was to be carried out.

        Slack doesn't tell: at its rate, the message may change a minute later.
        """
        end = time.monotonic() + patience_s
        while True:
            found = await self.core("lea", CoreClient.action, run, wait_s=min(patience_s, 5))
            if found.status != "Waiting" or (found.approval is not None and found.approval.approved_by):
                return True
            if time.monotonic() >= end:
                return False


def _target(reply: Mapping[str, Any]) -> str:
    """What an approval's message is about."""
    return find_ids(str(reply["blocks"][0]["text"]["text"]))[0]


# --- what must be true in the end -------------------------------------------------------------------------------------


def words(message: Mapping[str, Any]) -> tuple[str, ...]:
    """All that is written in a message, without the ids of its buttons."""
    found: list[str] = []

    def take(value: Any) -> None:
        if isinstance(value, Mapping):
            for key, item in value.items():
                if key == "text" and isinstance(item, str):
                    found.append(item)
                elif key not in ("metadata", "fallback", "confirm"):  # of a button, which the policy gives
                    take(item)
        elif isinstance(value, list | tuple):
            for item in value:
                take(item)

    take([message.get("blocks"), message.get("attachments")])
    return tuple(text for text in found if not text.endswith(" s by Slack's rate limit."))


@dataclass
class Truth:
    """What core knows once everything has ended, and the messages that follow from it, by channel and alert."""

    actions: list[Action]
    threads: dict[tuple[str, str], Counter[tuple[str, ...]]]
    files: Counter[str]

    def differences(self, view: Any) -> list[str]:
        """What Slack shows otherwise; a message that stands twice is one of them."""
        found = []
        shown: dict[tuple[str, str], Counter[tuple[str, ...]]] = {}
        files: Counter[str] = Counter()
        for channel in CHANNELS:
            for root in (m for m in view.messages(channel) if not m.get("ephemeral")):
                about = (channel, find_ids(root["text"])[0])
                if about in shown:
                    found.append(f"{about} has two cards")
                here = shown.setdefault(about, Counter())
                for message in (m for m in view.thread(channel, root["ts"]) if not m.get("ephemeral")):
                    files.update(file["title"] for file in message.get("files") or [])
                    if not message.get("files"):
                        here[words(message)] += 1
        for about in sorted({*self.threads, *shown}):
            want, have = self.threads.get(about, Counter()), shown.get(about, Counter())
            found += [f"{about} lacks {n} x {text}" for text, n in (want - have).items()]
            found += [f"{about} shows {n} x {text}" for text, n in (have - want).items()]
        found += [f"files: {files} instead of {self.files}"] if files != self.files else []
        return found


async def truth(scene: Scene) -> Truth:
    """Wait until each action has ended, and render what Slack must show."""
    found = await scene.core("lea", CoreClient.search, Action, "/api/connector/engine/action/_search")
    actions = [await _ended(scene, action) for action in found]
    threads: dict[tuple[str, str], Counter[tuple[str, ...]]] = {}
    files: Counter[str] = Counter()
    for alert_id, channel in scene.alerts.items():
        alert = await scene.core("lea", CoreClient.alert, alert_id)
        on_alert = [action for action in actions if action.object_id == alert_id]
        messages = [alert_card(alert, on_alert, **AS_SHOWN)]
        with_subjects = [(action, Subject.alert(alert)) for action in on_alert]
        if alert.case is not None:
            (document,) = (await scene.core("lea", CoreClient.documents, [alert.case])).documents
            case = document.case
            assert case is not None
            tasks = await scene.core("lea", CoreClient.tasks_of, case.id, MOST_COUNTED + 1)
            (task,) = (one for one in tasks if one.id == scene.tasks[case.id])
            alerts = await scene.core("lea", CoreClient.alerts_of, document)
            messages.append(case_card(case, document, tasks, alerts, **AS_SHOWN))
            subjects = {case.id: Subject.case(case), task.id: Subject.task(task, case)}
            with_subjects += [(one, subjects[one.object_id]) for one in actions if one.object_id in subjects]
            logs = [Log.model_validate(log) for log in kept(scene.installed, "case_task_log", task.id)]
            messages += [replies.task_log_card(log, [], Subject.log(log, case), **AS_SHOWN) for log in logs]
        for action, subject in with_subjects:
            if not was_decided_against(action):
                messages.append(replies.end_reply(action, subject, **AS_SHOWN))
            if action.approval is not None:
                messages.append(approvals.approval_request(action, subject, **AS_SHOWN, now_ms=now_ms()))
            file = replies.report_file(action, subject, clearance=AMBER)
            files.update([file[0]] if file else [])
        threads[channel, alert_id] = Counter(words(message.payload()) for message in messages)
    return Truth(actions, threads, files)


async def slack_shows(expected: Truth, scene: Scene, who: Person) -> list[str]:
    """What Slack shows otherwise in the end: it waits while messages change, as fast as Slack's rates allow."""
    with suppress(TimeoutError):
        while expected.differences(who.live_view):
            await scene.traffic_goes_on(who, QUIET_S)
    return expected.differences(who.live_view)


AS_SHOWN: Mapping[str, Any] = {"clearance": AMBER, "button": lambda _intent: "-"}


async def _ended(scene: Scene, action: Action) -> Action:
    """The action with its whole report, once it has ended."""
    async with asyncio.timeout(QUIET_S):
        while True:
            found = await scene.core("lea", CoreClient.action, action.id, wait_s=5)
            if found.end_date is not None:
                return found


def kept(installed: Installation, kind: str, parent: str = "") -> list[Json]:
    """Core's objects of a kind, below one of another."""
    rows = installed.rows(f"SELECT parent_id, doc FROM object WHERE kind = '{kind}' ORDER BY id")  # noqa: S608
    return [json.loads(doc) for above, doc in rows if parent in ("", f"~{above}")]


def unsettled(installed: Installation) -> int:
    """How many clicks and commands the bot still has to carry out."""
    ((number,),) = installed.rows_of_inbox("SELECT count(*) FROM inbox WHERE done_at = 0")
    return int(number)


def events_of(installed: Installation) -> Counter[tuple[str, str]]:
    """How often each event of an action stands in core's feed."""
    rows = installed.rows("SELECT object_id, type FROM event WHERE type LIKE 'action.%'")
    return Counter((f"~{number}", event) for number, event in rows)


def check_runs(scene: Scene, actions: Sequence[Action], lost: str = "") -> dict[str, int]:
    """Each request that was acknowledged has one action, no program ran twice, operations were applied once.

    `lost` is a pattern of what an action's report may say whose program was lost with its host.
    """
    by_request: dict[tuple[str, str], list[Action]] = {}
    for action in actions:
        by_request.setdefault((action.responder_name.removesuffix("_1_0"), action.object_id), []).append(action)
    twice = {about: len(found) for about, found in by_request.items() if len(found) > 1}
    assert not twice
    assert set(by_request) <= {(one.responder, one.object_id) for one in scene.requests}
    missing = {one for one in scene.acknowledged if (one.responder, one.object_id) not in by_request}
    assert len(missing) <= scene.refused(), (missing, scene.told_of(missing))
    lost_runs = 0
    for (responder, object_id), (action,) in by_request.items():
        ran = scene.installed.counted(responder, object_id)
        if lost and action.status == "Failure" and re.search(lost, action.report):
            assert ran <= 1, (responder, object_id, ran, action)
            assert action.operations == "[]", action
            lost_runs += 1
            continue
        decision = scene.decided.get(object_id, "") if responder == "Approved" else ""
        expected = {"approve": "Success", "deny": "Failure", "cancel": "Deleted"}.get(decision)
        assert expected in (None, action.status), (decision, action)
        if responder == "Approved":  # a click that Slack says failed may have been carried out all the same
            assert ran == (action.status == "Success"), (responder, object_id, ran, action)
        else:
            assert ran == 1, (responder, object_id, ran, action)
            assert action.status == ("Failure" if responder == "Failing" else "Success"), action
        applied = json.loads(action.operations)
        assert {one["status"] for one in applied} <= {"Success"}, action
        if responder == "Many":
            assert len(applied) == MANY
    check_operations(scene, [action for action in actions if action.status == "Success"])
    events = events_of(scene.installed)
    assert {events[action.id, "action.created"] for action in actions} <= {1}
    assert {events[action.id, "action.ended"] for action in actions} <= {1}
    return {
        "requests": len(scene.requests),
        "acknowledged": len(scene.acknowledged),
        "refused": len(missing),
        "actions": len(actions),
        "ended": sum(action.end_date is not None for action in actions),
        "lost with their host": lost_runs,
        "programs": sum(scene.installed.counted(*about) for about in by_request),
    }


def check_operations(scene: Scene, done: Sequence[Action]) -> None:
    on = {name: [a.object_id for a in done if a.responder_name == f"{name}_1_0"] for name in ("Many", "Logging")}
    titles = Counter(task["title"] for task in kept(scene.installed, "case_task"))
    by_run = Counter({title: n for title, n in titles.items() if not title.startswith("by hand")})
    assert by_run == Counter(f"{case} {number}" for case in on["Many"] for number in range(MANY))
    logs = Counter(log["message"] for log in kept(scene.installed, "case_task_log"))
    assert logs == Counter(f"{task} {number}" for task in on["Logging"] for number in range(LOGS))
    for alert in kept(scene.installed, "alert"):
        tags = [a.responder_name.removesuffix("_1_0") for a in done if a.object_id == alert["id"]]
        added = [tag for tag in tags if tag in TAGGING]
        assert sorted(alert["tags"]) == sorted([*ALERT["tags"], *added])


def faults_in(installed: Installation) -> list[str]:
    """What processes logged that only an error of our own explains."""
    return [
        f"{name}: {line}"
        for name, text in installed.logs()
        for line in (text.splitlines() if "Traceback" in text or '"internal_error"' in text else ())
        if not line.startswith("{") or "Traceback" in line or '"internal_error"' in line
    ]


async def cancelled(task: "asyncio.Task[None]") -> None:
    """End a task; raises what had ended it before, since nobody else asks."""
    task.cancel()
    (ended,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(ended, Exception):
        raise ended
