"""The scripted demo, without a browser: users act over the page's API, and each step is verified."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from bot.block_kit import ids
from bot.block_kit.text import readable_name
from bot.demo.environment import (
    ALERTS,
    ANNA,
    BEN,
    BLOCK,
    C2,
    CLOSE,
    EXTRACT,
    FIREWALL,
    ISOLATE,
    LEA,
    RELEASE,
    WEBHOOK,
    DemoEnvironment,
)
from bot.demo.transcript import Transcript, lines_of, text_of
from bot.slack_emulator import EmulatedUser, EmulatorView, Refused
from core.client import CoreClient
from core.common.errors import ResponderBotError
from core.common.tasks import cancel_and_wait
from core.models import Kind

STEP_S = 45.0  # generous: a responder starts in well under a second, but the machine may be busy
LOOK_EVERY_S = 0.1
TEMPLATE = "Malware beacon"

Message = Mapping[str, Any]


class DemoFailed(Exception):
    """A step of the demo failed; the message says which and why."""


class DemoScript:
    def __init__(
        self,
        environment: DemoEnvironment,
        transcript: Transcript,
        anna: EmulatedUser,
        ben: EmulatedUser,
        lea: EmulatedUser,
    ) -> None:
        self._environment = environment
        self._transcript = transcript
        self._anna = anna
        self._ben = ben
        self._lea = lea

    async def run(self) -> None:
        """Run all steps. Raises DemoFailed, TimeoutError, Refused or ResponderBotError on failure."""
        alert_id, ts = await self._alert(0)
        await self._reads(alert_id)
        await self._command(self._anna, "Anna", f"/responder list {alert_id}")
        listed = await self._anna.until(lambda view: _modal_with(view, _title(CLOSE)), STEP_S)
        self._transcript.say("slack", f"shows Anna\n{text_of(listed)}")
        await self._anna.close(listed["id"])
        await self._block(alert_id, ts)
        await self._command(self._anna, "Anna", f"/responder run {_title(EXTRACT)} {alert_id}")
        await self._ended(EXTRACT, "alert", alert_id, ts)
        await self._isolate(alert_id, ts)
        await self._run_on_log(alert_id, ts)
        await self._close(*await self._alert(2))
        await self._template()

    async def _alert(self, number: int) -> tuple[str, str]:
        self._transcript.say("siem", "POST /api/alert")
        alert_id = await self._environment.post_alert(number)
        cards = await self._anna.until(lambda view: _with(alert_id, view.messages(ALERTS)), STEP_S)
        return alert_id, str(cards[0]["ts"])

    async def _reads(self, alert_id: str) -> None:
        """Wait until core knows that the firewall reads what Block puts on the list."""
        async with asyncio.timeout(STEP_S):
            while FIREWALL not in str(await self._environment.lead.responders("alert", alert_id)):  # noqa: ASYNC110 - a program reads
                await asyncio.sleep(LOOK_EVERY_S)

    async def _block(self, alert_id: str, ts: str) -> None:
        """Block an address, and wait until the firewall has read that."""
        await self._command(self._anna, "Anna", f"/responder run {_title(BLOCK)} {alert_id} {C2}")
        form = await self._anna.until(_form(ids.START_VIEW), STEP_S)
        self._transcript.say("Anna", f"presses Block\n{text_of(form)}")
        await self._anna.submit(form["id"], {})
        await self._says(ts, f"read by {FIREWALL}")

    async def _close(self, alert_id: str, ts: str) -> None:
        """Close a false alarm."""
        await self._choose(ts, CLOSE)
        form = await self._ben.until(_form(ids.START_VIEW), STEP_S)
        self._transcript.say("Ben", "gives no reason and runs it")
        await self._ben.submit(form["id"], {})
        await self._ended(CLOSE, "alert", alert_id, ts)

    async def _isolate(self, alert_id: str, ts: str) -> None:
        """Isolate a host for a time, give it more time, and release it early."""
        await self._command(self._anna, "Anna", f"/responder run {_title(ISOLATE)} {alert_id}")
        form = await self._anna.until(_form(ids.START_VIEW), STEP_S)
        self._transcript.say("Anna", "chooses 15 minutes and asks for it")
        await self._anna.submit(form["id"], _lasting(form, "15"))
        await self._says(ts, "Anna asks")
        approve = await self._button(ts, ids.APPROVE)
        self._transcript.say("Ben", "presses Approve")
        await self._ben.click(ALERTS, ts, action_id=approve)
        asked = await self._ben.until(_form(ids.APPROVE_VIEW), STEP_S)
        self._transcript.say("slack", f"asks Ben\n{text_of(asked)}")
        await self._ben.submit(asked["id"], {})
        await self._ended(ISOLATE, "alert", alert_id, ts)
        self._transcript.say("Anna", "presses Extend, and chooses 30 minutes more")
        await self._anna.click(ALERTS, ts, action_id=await self._button(ts, ids.EXTEND))
        longer = await self._anna.until(_form(ids.EXTEND_VIEW), STEP_S)
        await self._anna.submit(longer["id"], _lasting(longer, "30"))
        await self._says(ts, "Keep until")
        self._transcript.say("Ben", "presses Undo now")
        await self._ben.click(ALERTS, ts, action_id=await self._button(ts, ids.UNDO))
        ends = await self._ben.until(_form(ids.UNDO_VIEW), STEP_S)
        self._transcript.say("slack", f"asks Ben\n{text_of(ends)}")
        await self._ben.submit(ends["id"], {})
        await self._ended(RELEASE, "alert", alert_id, ts)

    async def _says(self, ts: str, words: str) -> str:
        """The first message of a card and its thread that says this, once the transcript has it."""
        messages = await self._anna.until(lambda view: _with(words, view.thread(ALERTS, ts)), STEP_S)
        return str(messages[0]["ts"])

    async def _button(self, ts: str, family: str) -> str:
        """The action id of a button of this kind on the card, once it is there."""

        def find(view: EmulatorView) -> str:
            card = next((m for m in view.messages(ALERTS) if m["ts"] == ts), {})
            blocks = card.get("blocks") or ()
            elements = [e for b in blocks for e in [*(b.get("elements") or ()), b.get("accessory") or {}]]
            action_ids = (str(e.get("action_id") or "") for e in elements)
            return next((action_id for action_id in action_ids if ids.family(action_id) == family), "")

        return await self._anna.until(find, STEP_S)

    async def _run_on_log(self, alert_id: str, ts: str) -> None:
        """Create a case from the alert with a task log, and send the log to the ticket system."""
        self._transcript.say("Anna", "makes a case of the alert, with a task and a log")
        log_id = await self._log(alert_id)
        await self._choose(await self._says(ts, log_id), WEBHOOK)
        question = await self._ben.until(lambda view: _modal_with(view, "Send to "), STEP_S)
        self._transcript.say("Ben", "presses Send")
        await self._ben.submit(question["id"], {})
        await self._ended(WEBHOOK, "case_task_log", log_id, ts)
        if not self._environment.received:
            raise DemoFailed("the ticket system received nothing")

    async def _log(self, alert_id: str) -> str:
        async with CoreClient(self._environment.core_url, self._environment.keys["anna"]) as core:
            case = await core.create_case_from_alert(alert_id)
            task = await core.add_task(case.id, {"title": "Identify the host", "group": "Identification"})
            text = "192.0.2.45 is LT-0198 (j.meyer). Beacon every 250 s since 08:12. Ticket wanted."
            return (await core.add_log(task.id, {"message": text})).id

    async def _template(self) -> None:
        await self._command(self._lea, "Lea", "/responder template")
        is_form = _form(ids.TEMPLATE_VIEW)
        view = await self._lea.until(is_form, STEP_S)
        self._transcript.say("Lea", f"fills in the form: {TEMPLATE}")
        response = await self._lea.submit(
            view["id"], _form_values(view, {"name": TEMPLATE, "tags": "malware", "tasks": "Isolate the host"})
        )
        if response.get("errors"):
            raise DemoFailed(f"the form was refused: {response['errors']}")
        await self._lea.until(lambda view: bool(view.modal) and not is_form(view), STEP_S)
        created = await self._environment.lead.case_template(TEMPLATE)
        self._transcript.say("core", f"case template {created.id} {created.name}, {len(created.tasks)} task(s)")

    # user actions and checks

    async def _command(self, who: EmulatedUser, name: str, text: str) -> None:
        self._transcript.say(name, text)
        response = await who.command(ALERTS, text)
        if not response.get("ok"):
            raise DemoFailed(f"{text} was not acknowledged: {response.get('text')}")

    async def _choose(self, ts: str, responder: str) -> None:
        """Ben selects a responder in the menu of a message."""
        action_id = ids.MENU
        groups = await self._ben.options(ALERTS, ts, action_id=action_id, query="")
        options = [option for group in groups for option in group["options"]]
        title = _title(responder)
        chosen = next((option for option in options if option["text"]["text"] == title), None)
        if chosen is None:
            raise DemoFailed(f"the menu does not offer {title}")
        self._transcript.say("Ben", f"chooses {title}")
        await self._ben.click(ALERTS, ts, action_id=action_id, value=chosen["value"])

    async def _ended(self, responder: str, kind: Kind, object_id: str, ts: str) -> None:
        """Wait until the channel shows the action as ended, and check that it succeeded in core."""

        name = _title(responder)

        def is_shown(view: EmulatorView) -> bool:
            """Both on the card (or the task log's message) and in the thread; what undoes another run only there."""
            lines = [line for m in view.thread(ALERTS, ts) for line in lines_of(m) if name in line]
            ended = [line for line in lines if any(word in line for word in ("done", "failed", "in force"))]
            return len(ended) >= (1 if responder == RELEASE else 2)

        await self._anna.until(is_shown, STEP_S)
        action = next(a for a in await self._environment.lead.actions(kind, object_id) if a.responder_name == responder)
        self._transcript.say("core", f"{name} ended: {action.status}")
        if action.status != "Success":
            raise DemoFailed(f"{name} on {object_id} ended in {action.status}")


def _form_values(view: Message, values: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Values by block and action id."""
    inputs = [block for block in view["blocks"] if block["type"] == "input" and block["block_id"] in values]
    return {block["block_id"]: {block["element"]["action_id"]: values[block["block_id"]]} for block in inputs}


def _with(words: str, messages: Sequence[Message]) -> Sequence[Message]:
    return [message for message in messages if words in text_of(message)]


def _title(responder: str) -> str:
    """What Slack shows of it."""
    return readable_name(responder).removeprefix("Demo ")


def _form(callback_id: str) -> Callable[[EmulatorView], Message]:
    """Finds the open form with this callback id; {} while there is none."""
    return lambda view: view.modal if view.modal and view.modal.get("callback_id") == callback_id else {}


def _lasting(form: Message, minutes: str) -> dict[str, dict[str, Any]]:
    """The values of a form whose run lasts so many minutes."""
    field = next(b for b in form["blocks"] if str(b.get("block_id")).startswith(("undo_after", "longer")))
    return {field["block_id"]: {field["element"]["action_id"]: minutes}}


def _modal_with(view: EmulatorView, text: str) -> Message:
    modal: Message = view.modal or {}
    return modal if text in text_of(modal) else {}


async def run_script(environment: DemoEnvironment, print_line: Callable[[str], None]) -> int:
    """Run the demo and print its transcript. Returns 0 on success, else 1."""
    transcript = Transcript(print_line)
    async with AsyncExitStack() as stack:
        users = [
            await stack.enter_async_context(
                EmulatedUser(environment.emulator.url, environment.emulator.page_token, user)
            )
            for user in (ANNA, BEN, LEA)
        ]
        following = asyncio.create_task(transcript.follow(users[0], ALERTS, "soc-alerts"))
        end = "All steps succeeded."
        try:
            await DemoScript(environment, transcript, *users).run()
        except (DemoFailed, TimeoutError, Refused, ResponderBotError) as error:
            end = f"Failed: {type(error).__name__}: {error}"
        await cancel_and_wait(following)
    print_line(f"\n{end}")
    return 1 if end.startswith("Failed") else 0
