"""A whole installation on the loopback: core with real responders, the bot, and an emulator of Slack with people."""

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Any, TypeVar

import yaml

from core.models import Action, Alert, Profile
from core.settings import EngineSection, ResponderSection
from tests.bot.people import Person, card_of
from tests.bot.running import CHANNELS, BotEnvironment, running_bot
from tests.responder_folders import answering, write_responder

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
CLEAR: Mapping[str, Any] = {"tlp": 0, "artifacts": [{"dataType": "ip", "data": "203.0.113.7", "tlp": 0}]}
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
    "Stall": {"description": "Watches what a file does."},
    "Fail": {"description": "Puts it back."},
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
LONG = "\n".join(f"line {n} of the report" for n in range(200))
DONE: dict[str, Any] = {
    "success": True,
    "full": {"message": "Told the firewall."},
    "operations": [{"type": "MarkAlertAsRead"}],
}
FAILED = {"success": False, "errorMessage": "The firewall said no."}
REPORTED = {"success": True, "full": {"message": "Looked it up.", "text": LONG}, "operations": []}


def write_responders(folder: Path, **reports: Mapping[str, Any]) -> dict[str, ResponderSection]:
    """Write the responders of these tests, some with other `reports`. Returns their settings."""
    waiting = f"read line < {quote(str(folder / 'go'))}"
    settings: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "Tell": (DONE, {}),
        "Fail": (FAILED, {}),
        "Report": (REPORTED, {}),
        "Wait": (DONE, {}),
        "Stall": (FAILED, {}),
        "Shun": (DONE, {"confirm": "Blocks the host at the firewall. It can be undone there."}),
        "Isolate": (DONE, {"approval": 1}),
        "Contain": (DONE, {"approval": 1, "confirm": "Cuts the host off."}),
        "Quarantine": (DONE, {"approval": 2}),
        "Secret": (DONE, {"config": {"check_tlp": True, "max_tlp": 0}}),
        "Vendor_Drop": (FAILED, {}),
        "Vendor_Pick": (DONE, {}),
        "Vendor_Ban": (DONE, {"confirm": "Nobody reaches it any more.", "approval": 1}),
    }
    home = folder / "responders"
    sections: dict[str, ResponderSection] = {}
    for name, (report, policy) in settings.items():
        types = ["thehive:alert", *MORE_TYPES.get(name, ())]
        program = answering(reports.get(name, report), waiting if name in ("Wait", "Stall") else ":")
        write_responder(home, name, program, dataTypeList=types, **DECLARED.get(name, {}))
        sections[f"{name}_1_0"] = ResponderSection(**policy)
    minutes = {"name": "minutes", "type": "number", "default": 60, "minimum": 0, "maximum": 600}
    reason = {"name": "reason", "type": "string"}
    for name, inputs in (("Block_Address", [minutes, reason]), ("Release_Address", [])):
        write_responder(home, name, answering(DONE), dataTypeList=["ip"], parameters=inputs)
        sections[f"{name}_1_0"] = ResponderSection()
    return sections


@dataclass
class FeatureEnvironment(BotEnvironment):
    """A running bot with the responders of these tests, and all people; each opens the page when first needed."""

    folder: Path = field(kw_only=True)
    people: dict[str, Person] = field(default_factory=dict, kw_only=True)

    def __getitem__(self, name: str) -> Person:
        """The person with this name."""
        return self.people[f"U0{name.upper()}"]

    async def create_alert(self, **more: Any) -> Alert:
        return await self.client.create_alert({**ALERT, **more})

    async def alert_and_card(self, name: str, **more: Any) -> tuple[Alert, dict[str, Any]]:
        """An alert, and its card on this person's page."""
        alert = await self.create_alert(**more)
        return alert, await self[name].sees(card_of(alert))

    async def release_responder(self) -> None:
        """Let the responder that waits finish."""
        await asyncio.to_thread((self.folder / "go").write_text, "go\n")

    async def ended_run(self, alert: Alert) -> Action:
        """The newest run on the alert, once it has ended."""
        newest = (await self.client.actions("alert", alert.id))[0]
        while newest.end_date is None:
            newest = await self.client.action(newest.id, wait_s=10)
        return newest


@asynccontextmanager
async def feature_environment(
    folder: Path,
    rules: Mapping[str, Mapping[str, Any]] | None = None,
    reports: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    **sections: Any,
) -> AsyncIterator[FeatureEnvironment]:
    """Run the installation until the block ends, with further settings (`rules`) and other reports of responders."""
    os.mkfifo(folder / "go")
    responders = write_responders(folder, **reports)
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
