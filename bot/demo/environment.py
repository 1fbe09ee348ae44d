"""Everything that `try` runs: emulator, core, bot, and a receiver for the webhook responder."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiohttp import BasicAuth, ClientError, ClientSession, web

from bot.app import Bot
from bot.block_kit.text import readable_name
from bot.settings import BotSettings, parse
from bot.slack_emulator import Pointer, SlackEmulator
from core.app import Core
from core.client import CoreClient
from core.common.errors import Ignoring, ResponderBotError
from core.common.private_files import replace_text
from core.common.settings_file import Sections
from core.common.tasks import cancel_and_wait
from core.models import Profile
from core.settings import CoreSettings, core_settings

HERE = Path(__file__).parent
ALERTS = "C0ALERTS"
SHARED = "C0SHARED"
NIGHT = "C0NIGHT"
ANNA, BEN, LEA, MIA, TOM = "U0ANNA", "U0BEN", "U0LEA", "U0MIA", "U0TOM"
TEAM = "T0LOCAL"
EXTRACT = "ResponderBot_ExtractIndicators_1_0"
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"
WEBHOOK = "ResponderBot_Webhook_1_0"
MAIL = "ResponderBot_Mail_1_0"
BLOCK = "ResponderBot_Block_1_0"
FIREWALL = "edge-fw"  # reads what is blocked
FIREWALL_READS_EVERY_S = 1.0
LISTS = ("ip", "domain", "url", "hash")
DOMAIN = "updates.example.net"  # likewise
VICTIM = "192.0.2.45"  # likewise, and protected
C2 = "198.51.100.23"  # of the first sample alert
SURICATA = "suricata"
STORM, STORM_HIGH = 59, 15  # alerts that say the same, and how many of them are high
ISOLATE = "Demo_Isolate_Host_1_0"
RELEASE = "Demo_Release_Host_1_0"
DETONATE = "Demo_Detonate_1_0"

PEOPLE: tuple[tuple[str, str, str, Profile, int], ...] = (  # Slack id, name, real name, profile, clearance
    (ANNA, "anna", "Anna (analyst)", "analyst", 2),
    (BEN, "ben", "Ben (analyst)", "analyst", 2),
    (LEA, "lea", "Lea (lead)", "org-admin", 3),
    (MIA, "mia", "Mia (lead)", "org-admin", 3),
    (TOM, "tom", "Tom (may only read)", "read-only", 0),
)
CHANNELS: tuple[Mapping[str, Any], ...] = (
    {"id": ALERTS, "clearance": "amber", "alerts": {}, "mention": {"critical": LEA}},
    {"id": SHARED, "clearance": "clear", "alerts": {"severity_at_least": 2}},
    {"id": NIGHT, "clearance": "red", "alerts": {"severity_at_least": 4}},
)


Start = Callable[[CoreSettings, BotSettings], AbstractAsyncContextManager[tuple[Core, Bot, str]]]
"""Runs core and the bot; gives core's URL, too."""


@dataclass
class DemoEnvironment:
    emulator: SlackEmulator
    core_url: str
    keys: Mapping[str, str]
    siem: CoreClient
    """Core client of the system that sends alerts, which may do nothing else."""
    lead: CoreClient
    """Core client of Lea, to check what happened."""
    received: list[Mapping[str, Any]]
    """Bodies that the webhook responder sent."""

    async def post_alert(self, number: int) -> str:
        """Create a sample alert over HTTP, unless it is there. Returns its id."""
        alert = json.loads((HERE / "alerts.json").read_text("utf-8"))[number]
        with Ignoring("exists"):  # --state names a folder that was used before
            await self.siem.create_alert(alert)
        return (await self.lead.alert(f"{alert['type']};{alert['source']};{alert['sourceRef']}")).id

    async def storm(self) -> None:
        """Create many alerts that say the same."""
        for number in range(STORM):
            address = f"203.0.113.{number}"
            alert = {
                "type": "ids",
                "source": SURICATA,
                "sourceRef": f"scan-{number}",
                "title": f"ET SCAN Potential SSH Scan from {address}",
                "description": "Many connections to port 22.",
                "severity": 3 if number < STORM_HIGH else 1,
                "artifacts": [{"dataType": "ip", "data": address}],
            }
            with Ignoring("exists"):
                await self.siem.create_alert(alert)


@asynccontextmanager
async def demo_environment(
    state: Path, start: Start, manifest: Mapping[str, Any], *, port: int = 0
) -> AsyncIterator[DemoEnvironment]:
    """Start everything. The page listens on `port` and core on the next one; 0 picks free ports."""
    async with AsyncExitStack() as stack:
        emulator = SlackEmulator(manifest)
        _add_people_and_channels(emulator)
        await listen(emulator, port)
        stack.push_async_callback(emulator.stop)
        received: list[Mapping[str, Any]] = []
        receiver = await stack.enter_async_context(_receiver(received))
        core_part = core_settings(Sections(state, "try", _core_tables(receiver, port)))
        bot_part = parse(_bot_tables(emulator), state)
        core, _, url = await stack.enter_async_context(start(core_part, bot_part))
        keys = {
            name: await _key(core, name, profile, clearance, f"{TEAM}:{slack_id}")
            for slack_id, name, _, profile, clearance in PEOPLE
        }
        keys["siem"] = await _key(core, "siem", "source")
        keys[SURICATA] = await _key(core, SURICATA, "source")
        keys[FIREWALL] = await _key(core, FIREWALL, "reader")
        siem = await stack.enter_async_context(CoreClient(url, keys["siem"]))
        lead = await stack.enter_async_context(CoreClient(url, keys["lea"]))
        await emulator.wait_connected()
        firewall = asyncio.create_task(_read_block_list(url, keys[FIREWALL]))
        stack.push_async_callback(cancel_and_wait, firewall)
        _write_addresses(state / "try.json", emulator, url, keys)
        address = f"{url}/api/ingest/{SURICATA}"
        replace_text(state / "suricata.curl", f'url = "{address}"\nuser = "{SURICATA}:{keys[SURICATA]}"\n')
        yield DemoEnvironment(emulator, url, keys, siem, lead, received)


async def _key(core: Core, login: str, profile: Profile, clearance: int = 0, slack_id: str = "") -> str:
    """Add a user, linked to `slack_id` unless it is empty. Returns the API key."""
    try:
        return await core.people.add(login, profile, clearance=clearance, slack_id=slack_id)
    except ResponderBotError as error:
        if error.code != "exists":
            raise
        return await core.people.temporary_key(login, profile)  # --state names a folder that was used before


async def listen(emulator: SlackEmulator, port: int) -> None:
    """Start the emulator. Raises ResponderBotError if the port is not available."""
    try:
        await emulator.start(port=port)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise ResponderBotError(
            "bad_request",
            f"The port {port} can't be used ({reason}); give another with --port or leave it out.",
        ) from error


def _add_people_and_channels(emulator: SlackEmulator) -> None:
    for slack_id, name, real_name, _, _ in PEOPLE:
        emulator.add_user(slack_id, name=name.title(), real_name=real_name, email=f"{name}@responder-bot.local")
    emulator.add_channel(ALERTS, name="soc-alerts")
    emulator.add_channel(SHARED, name="csirt-exchange", is_shared=True)
    emulator.add_channel(NIGHT, name="soc-major", is_private=True, members=[LEA, MIA])


# Nothing listens on port 9, so this responder fails.
NO_MAIL = {"smtp_host": "127.0.0.1", "smtp_port": 9, "from": "soc@example.org", "to": "on-call@example.org"}


def pointers(environment: DemoEnvironment, alert_ids: Sequence[str]) -> list[Pointer]:
    """Things to try, in the order of a morning, on the sample alerts with these ids."""
    first, _, third = alert_ids  # the second is TLP:RED, which Anna may not see
    card = f"alert {first}:"

    def pointer(title: str, text: str, command: str = "", **more: Any) -> Pointer:
        insert = f"/responder {command}" if command else ""
        return Pointer(title, text, insert=insert, **{"user": ANNA, "channel": ALERTS, **more})

    def run(responder: str, on: str) -> str:
        return f"run {readable_name(responder)} {on}"

    return [
        pointer("See what came in", "Three alerts. The second rang Lea. Anna may not see it: it is TLP:RED."),
        pointer("See what can be done", "And why the rest can't.", f"list {first}", done=r"\*Can run \("),
        pointer("Try to block the victim", "Its address is protected.", run(BLOCK, f"{first} {VICTIM}"),
                done=r"\*Block\* can't run on.{0,200} protected"),
        pointer("Block an address", "Also in Run a responder, on the card, which says when the firewall has read it.",
                run(BLOCK, f"{first} {C2}"), done=rf"\*Block\* on.{{0,200}} read by {FIREWALL}"),
        pointer("Run one", "It collects the addresses and domains.", run(EXTRACT, first),
                done=r"\*Extract Indicators\* done"),
        pointer("Be asked first", "It says what it does before it runs.", run(WEBHOOK, first),
                done=r"\*Webhook\* done"),
        pointer("Need a second person", "It waits until somebody approves.", f"run Isolate Host {first}",
                done=r"⏳ \*Isolate Host\*"),
        pointer("See what Ben's phone showed", "A request rings those who may approve it.", user=BEN, phone=True),
        pointer("Approve it as Ben", "His App Home lists what waits for him.", user=BEN, home=True,
                done=r"🔒 \*Isolate Host\* on"),
        pointer("See what Anna's phone showed", "She asked, so it says what came of it.", phone=True),
        pointer("Ask for more time", "Extend, first on the card.", shows=card, done=r"\*Keep (until|with no end)"),
        pointer("End it early", "Undo now ends it, whatever else waits.", shows=card, done=r"🔓 \*Release Host\* done"),
        pointer("Run on several", "One question, one message for all.", run(EXTRACT, f"{first} {third}"),
                done=r"on 2 targets: 2 of 2"),
        pointer("Make a case", "Its card is in the alert's thread.", f"case {first}", done="Case made|in case ~"),
        pointer("See a storm", "59 alerts that say the same share a card.", start=environment.storm,
                done=f"{STORM} × "),
        pointer("See one fail", "Its mail server is away.", run(MAIL, first), shows=card, done=r"\*Mail\* failed"),
        pointer("Override a limit as Lea", "Here only one block an hour is allowed.",
                run(BLOCK, f"{first} {DOMAIN}"), user=LEA, done=r"\*Override\*: \*Block on"),
        pointer("Approve that as Mia", "It needs another administrator.", user=MIA, home=True,
                done=r"🔒 \*Block\* on domain"),
        pointer("Close a false alarm", "It tags the alert and closes it.", run(CLOSE, third), done=r"\*closed\* by"),
        pointer("See less", "Another company reads this channel: it has what is TLP:CLEAR.", channel=SHARED),
        pointer("Make a case template", "As Lea, who leads the team.", "template", user=LEA, done="Template created"),
    ]  # fmt: skip


def _core_tables(receiver: str, port: int) -> Mapping[str, Any]:
    # They only say so, also of what is protected; and `try` is for machines without Landlock too.
    anywhere = {"confinement": "none", "protect": False}
    return {
        "source": {SURICATA: {"preset": SURICATA}},
        "protect": {"artifacts": [VICTIM]},
        "core": {"port": port + 1 if port else 0, "log_level": "warning"},
        "engine": [{"name": "local", "type": "process", "responders": [str(HERE / "responders")]}],
        "responder": {
            WEBHOOK: {
                "config": {"url": receiver},
                "confirm": "Opens a ticket.",
            },
            MAIL: {"config": NO_MAIL},
            BLOCK: {"rate": ["1/1h"]},
            ISOLATE: {
                "confirm": "Takes the host off the network.",
                "approval": 1,
                "undo": RELEASE,
                "undo_after_minutes": 60,
                "allow_permanent": True,  # so that Extend has something to offer at once
                **anywhere,
            },
            RELEASE: anywhere,
            DETONATE: anywhere,
        },
    }  # fmt: skip


def _bot_tables(emulator: SlackEmulator) -> Mapping[str, Any]:
    return {
        "slack": {
            "bot_token": emulator.bot_token,
            "app_token": emulator.app_token,
            "api_url": emulator.api_url,
        },
        "channel": [dict(channel) for channel in CHANNELS],
    }


async def _read_block_list(core_url: str, key: str) -> None:
    """Read what is blocked again and again, as a firewall does."""
    async with ClientSession(auth=BasicAuth(FIREWALL, key), base_url=core_url) as session:
        while True:
            with suppress(ClientError):
                for name in LISTS:
                    async with session.get(f"/api/blocklist/{name}.txt") as answer:
                        await answer.read()
            await asyncio.sleep(FIREWALL_READS_EVERY_S)


@asynccontextmanager
async def _receiver(received: list[Mapping[str, Any]]) -> AsyncIterator[str]:
    """A ticket system for the webhook responder: records the JSON it receives and returns a ticket."""

    async def create_ticket(request: web.Request) -> web.Response:
        received.append(await request.json())
        return web.json_response({"ticket": f"INC-{1000 + len(received)}"}, status=201)

    served = web.Application()
    served.router.add_post("/tickets", create_ticket)
    runner = web.AppRunner(served, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    for name in ("no_proxy", "NO_PROXY"):  # inherited by responders: no proxy to the receiver
        os.environ[name] = f"{os.environ.get(name, '')},127.0.0.1".lstrip(",")
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/tickets"
    finally:
        await runner.cleanup()


def _write_addresses(file: Path, emulator: SlackEmulator, core_url: str, keys: Mapping[str, str]) -> None:
    """Write addresses, tokens and API keys to a file that only this user can read."""
    content = {
        "page": emulator.page_url,
        "core": core_url,
        "slack_api": emulator.api_url,
        "bot_token": emulator.bot_token,
        "app_token": emulator.app_token,
        "keys": dict(keys),
        "channels": {"soc-alerts": ALERTS, "csirt-exchange": SHARED, "soc-major": NIGHT},
    }
    replace_text(file, json.dumps(content, indent=2))
