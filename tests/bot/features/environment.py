"""A whole installation on the loopback: core with real responders, the bot, and an emulator of Slack with people."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml

from bot.slack_emulator import EmulatedUser, EmulatorView
from bot.slack_emulator.limits import problems
from core.models import Action, Alert, Profile
from core.settings import EngineSection, ResponderSection
from tests.bot.running import CHANNELS, SOC, BotEnvironment, running_bot
from tests.responder_folders import write_responder

T = TypeVar("T")
MANIFEST = yaml.safe_load((Path(__file__).parents[3] / "manifest.yml").read_text())
PEOPLE: Mapping[str, tuple[str, Profile | None, int]] = {
    "U0ANNA": ("anna", "analyst", 2),
    "U0BEN": ("ben", "analyst", 3),
    "U0LEA": ("lea", "org-admin", 3),
    "U0EVE": ("eve", "read-only", 2),
    "U0UMA": ("uma", None, 0),  # not linked
}
ALERT = {
    "type": "ids",
    "source": "suricata",
    "sourceRef": "2025-1",
    "title": "ET MALWARE Beacon to known C2",
    "description": "host web-3 beacons to 203.0.113.7 every 60 s",
    "severity": 3,
    "tags": ["c2"],
    "artifacts": [{"dataType": "ip", "data": "203.0.113.7"}],
}
SCRIPT = '''"""Waits for the pipe `go` if it is configured, then writes the configured output."""
import json, sys
from pathlib import Path
job = Path(sys.argv[1])
config = json.loads((job / "input" / "input.json").read_text())["config"]
if config.get("go"):
    with open(config["go"]) as go:
        go.readline()
(job / "output" / "output.json").write_text(config["answer"])
'''
BAN, DROP = "Ban an address", "Drop traffic"
"""The titles of responders that declare an input of each type: one asks first and needs approval, one fails."""
INPUTS: list[dict[str, Any]] = [
    {"name": "reason", "title": "Reason", "description": "Why; it stands in the log", "required": True},
    {"name": "notes", "type": "text"},
    {"name": "minutes", "type": "number", "default": 60, "minimum": 1, "maximum": 600},
    {"name": "everywhere", "type": "boolean", "default": True},
    {"name": "list", "title": "Which list", "type": "choice", "options": ["inbound", "outbound"], "required": True},
    {"name": "tell", "type": "choices", "options": ["owner", "helpdesk", "provider"]},
    {"name": "until", "type": "date"},
    {"name": "owner", "title": "Who answers for it", "type": "user"},
]
MORE_TYPES = {"Tell": ["thehive:case_task_log"], "Quarantine": ["ip", "thehive:case"], "Wait": ["ip"], "Fail": ["ip"]}
DECLARED: Mapping[str, Mapping[str, Any]] = {
    "Vendor_Ban": {"title": BAN, "parameters": INPUTS},
    "Vendor_Drop": {"title": DROP, "parameters": INPUTS},
    "Vendor_Pick": {
        "title": "Pick",
        "parameters": [
            {"name": "host", "type": "choice", "options": [f"host {n}" for n in range(100)], "required": True},
            {"name": "sites", "type": "choices", "options": ["here", "there"]},
        ],
    },
}
VIEW_KEYS = ("type", "callback_id", "title", "close", "submit", "blocks", "private_metadata")
LONG = "\n".join(f"line {n} of the report" for n in range(200))
DONE = {"success": True, "full": {"message": "Told the firewall."}, "operations": [{"type": "MarkAlertAsRead"}]}
FAILED = {"success": False, "errorMessage": "The firewall said no."}
REPORTED = {"success": True, "full": {"message": "Looked it up.", "text": LONG}, "operations": []}


def write_responders(folder: Path) -> dict[str, ResponderSection]:
    """Write the responders of these tests. Returns their settings."""
    go = str(folder / "go")
    settings: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "Tell": ({"answer": DONE}, {}),
        "Fail": ({"answer": FAILED}, {}),
        "Report": ({"answer": REPORTED}, {}),
        "Wait": ({"answer": DONE, "go": go}, {}),
        "Stall": ({"answer": FAILED, "go": go}, {}),
        "Shun": ({"answer": DONE}, {"confirm": "Blocks the host at the firewall. It can be undone there."}),
        "Isolate": ({"answer": DONE}, {"approval": 1}),
        "Contain": ({"answer": DONE}, {"approval": 1, "confirm": "Cuts the host off."}),
        "Quarantine": ({"answer": DONE}, {"approval": 2}),
        "Secret": ({"answer": DONE}, {"config": {"check_tlp": True, "max_tlp": 0}}),
        "Vendor_Drop": ({"answer": FAILED}, {}),
        "Vendor_Pick": ({"answer": DONE}, {}),
        "Vendor_Ban": ({"answer": DONE}, {"confirm": "Nobody reaches it any more.", "approval": 1}),
    }
    home = folder / "responders"
    sections: dict[str, ResponderSection] = {}
    for name, (config, policy) in settings.items():
        types = ["thehive:alert", *MORE_TYPES.get(name, ())]
        items = [{"name": item, "type": "string", "required": False} for item in ("answer", "go")]
        declared = DECLARED.get(name, {})
        write_responder(home, name, SCRIPT, dataTypeList=types, configurationItems=items, **declared)
        own = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
        more = dict(policy)
        sections[f"{name}_1_0"] = ResponderSection(config={**own, **more.pop("config", {})}, **more)
    minutes = {"name": "minutes", "type": "number", "default": 60, "minimum": 0, "maximum": 600}
    reason = {"name": "reason", "type": "string"}
    for name, inputs in (("Block_Address", [minutes, reason]), ("Release_Address", [])):
        items = [{"name": "answer", "type": "string", "required": False}]
        write_responder(home, name, SCRIPT, dataTypeList=["ip"], configurationItems=items, parameters=inputs)
        sections[f"{name}_1_0"] = ResponderSection(config={"answer": json.dumps(DONE)})
    return sections


@dataclass
class FeatureEnvironment(BotEnvironment):
    """A running bot with the responders of these tests, and all people; each opens the page when first needed."""

    folder: Path = field(kw_only=True)
    people: dict[str, EmulatedUser] = field(default_factory=dict, kw_only=True)
    _reported: set[str] = field(default_factory=set, kw_only=True)

    def __getitem__(self, name: str) -> EmulatedUser:
        """The person with this name."""
        return self.people[f"U0{name.upper()}"]

    async def create_alert(self, **more: Any) -> Alert:
        return await self.client.create_alert({**ALERT, **more})

    async def alert_and_card(self, name: str, **more: Any) -> tuple[Alert, dict[str, Any]]:
        """An alert, and its card on this person's page."""
        alert = await self.create_alert(**more)
        return alert, await self.card_of(name, alert)

    async def card_of(self, name: str, alert: Alert, channel: str = SOC) -> dict[str, Any]:
        """The card of the alert on this person's page, once it is posted."""
        return await self.until(name, lambda view: card_in(view, channel, alert.id))

    async def until(self, name: str, look: Callable[[EmulatorView], T | None]) -> T:
        """What `look` finds on the person's view, once it finds something."""
        try:
            found = await self[name].until(look)
        except TimeoutError as error:
            for user, person in self.people.items():
                await person.connect()
                error.add_note(f"{user} sees {person.live_view.summary()}")
            raise
        assert found is not None  # `until` waits for it
        return found

    async def closed(self, name: str) -> None:
        """Wait until this person has no modal open any more."""
        await self.until(name, lambda view: None if view.modal else True)

    async def release_responder(self) -> None:
        """Let the responder that waits finish."""
        await asyncio.to_thread((self.folder / "go").write_text, "go\n")

    async def ended_run(self, alert: Alert) -> Action:
        """The newest run on the alert, once it has ended."""
        newest = (await self.client.actions("alert", alert.id))[0]
        while newest.end_date is None:
            newest = await self.client.action(newest.id, wait_s=10)
        return newest

    async def ephemeral(self, name: str, words: str, channel: str = SOC) -> dict[str, Any]:
        """The newest ephemeral message to this person with these words, once it is there."""

        def seen(view: EmulatorView) -> dict[str, Any] | None:
            return next((m for m in reversed(view.ephemerals(channel)) if words in text_of(m)), None)

        return within_limits(await self.until(name, seen))

    async def told(self, name: str, words: str, channel: str = SOC) -> dict[str, Any]:
        """What tells this person these words, in a modal or an ephemeral message, once it is there.

        Each is returned once, so that asking the same again waits for the next.
        """

        def seen(view: EmulatorView) -> dict[str, Any] | None:
            shown = [*reversed(view.modals), *reversed(view.ephemerals(channel))]
            return next((m for m in shown if words in text_of(m) and _identity(m) not in self._reported), None)

        found = await self.until(name, seen)
        self._reported.add(_identity(found))
        return found if found.get("type") == "modal" else within_limits(found)


def _identity(shown: Mapping[str, Any]) -> str:
    """Tells messages and states of a view apart."""
    return str(shown.get("ts") or (shown["id"], shown["hash"]))


def card_in(view: EmulatorView, channel: str, alert_id: str, words: str = "") -> dict[str, Any] | None:
    """The card of an alert on a person's view, if it has these words."""
    for message in view.messages(channel):
        if not message.get("ephemeral") and f" {alert_id}:" in message["text"] and words in text_of(message):
            return message
    return None


def text_of(message: Mapping[str, Any]) -> str:
    """All texts of a message or view."""
    return json.dumps([message.get(k) for k in ("text", "title", "blocks", "attachments")], ensure_ascii=False)


def within_limits(message: dict[str, Any]) -> dict[str, Any]:
    """The message, after a check of Slack's limits."""
    payload = {key: message[key] for key in ("text", "blocks", "attachments") if message.get(key)}
    assert problems("message", payload) == []
    return message


def topmost(callback_id: str, words: str = "") -> Any:
    """Looks for the modal on top, with this callback id and these words."""

    def look(view: EmulatorView) -> dict[str, Any] | None:
        modal = view.modal
        return modal if modal and modal["callback_id"] == callback_id and words in text_of(modal) else None

    return look


def fine(view: dict[str, Any]) -> dict[str, Any]:
    """The view, after a check of Slack's limits."""
    shown = {key: view[key] for key in VIEW_KEYS if view.get(key)}
    assert problems("home" if view["type"] == "home" else "modal", shown) == []
    return view


@asynccontextmanager
async def feature_environment(
    folder: Path, rules: Mapping[str, Mapping[str, Any]] | None = None, **sections: Any
) -> AsyncIterator[FeatureEnvironment]:
    """Run the installation until the block ends; `rules` are further settings of responders, by name."""
    os.mkfifo(folder / "go")
    responders = write_responders(folder)
    for name, more in (rules or {}).items():
        own = responders[f"{name}_1_0"].model_dump(exclude_unset=True)
        responders[f"{name}_1_0"] = ResponderSection.model_validate({**own, **more})
    engine = EngineSection(name="local", responders=(folder / "responders",))
    options: dict[str, Any] = {"manifest": MANIFEST, "people": PEOPLE, "channels": CHANNELS[:2]}
    options |= {"engine": (engine,), "responder": responders, **sections}
    async with running_bot(folder, **options) as env:
        people = {user_id: env.reader(user_id) for user_id in PEOPLE}
        await env.bot.leading.wait()
        yield FeatureEnvironment(**vars(env), folder=folder, people=people)


def message_with(channel: str, *words: str) -> Callable[[EmulatorView], dict[str, Any] | None]:
    """Looks for the newest message with all these words."""

    def look(view: EmulatorView) -> dict[str, Any] | None:
        return next((m for m in reversed(view.messages(channel)) if all(w in text_of(m) for w in words)), None)

    return look


def modal_with(*words: str) -> Callable[[EmulatorView], dict[str, Any] | None]:
    return lambda view: view.modal if view.modal and all(w in text_of(view.modal) for w in words) else None


async def seen(env: BotEnvironment, who: str, look: Callable[[EmulatorView], dict[str, Any] | None]) -> dict[str, Any]:
    found = await (await env.person(who)).until(look)
    assert found is not None
    return fine(found) if found.get("type") in ("modal", "home") else within_limits(found)
