"""manifest.yml describes the app that the code implements."""

import re
from pathlib import Path
from typing import Any

import yaml

from bot.app.dispatcher import CHANNEL_EVENTS
from bot.doctor import LEFT_OUT
from bot.features.registry import COMMANDS, EVENTS, SHORTCUTS
from bot.slack_emulator.manifest import EVENT_SCOPES

ROOT = Path(__file__).parents[3]
MANIFEST: dict[str, Any] = yaml.safe_load((ROOT / "manifest.yml").read_text())
READS, HISTORY = {"channels:read", "groups:read"}, {"channels:history", "groups:history", "im:history"}
NEEDED: dict[str, set[str]] = {  # the scopes that Slack documents for each method
    "apps.connections.open": set(),
    "auth.test": set(),
    "bots.info": {"users:read"},
    "chat.delete": {"chat:write"},
    "chat.postEphemeral": {"chat:write"},
    "chat.postMessage": {"chat:write"},
    "chat.update": {"chat:write"},
    "conversations.history": HISTORY,
    "conversations.info": READS,
    "conversations.members": READS,
    "conversations.open": {"im:write"},
    "conversations.replies": HISTORY,
    "files.completeUploadExternal": {"files:write"},
    "files.delete": {"files:write"},
    "files.getUploadURLExternal": {"files:write"},
    "users.conversations": READS,
    "users.info": {"users:read"},
    "views.open": set(),
    "views.publish": set(),
    "views.update": set(),
}
FAMILIES = "chat|views|conversations|files|auth|users|team|bots|apps"


def called() -> set[str]:
    """The Web API methods that the bot's source calls, by name or through the client."""
    by_client = re.compile(rf"slack\.((?:{FAMILIES})_\w+)\(")
    by_name = re.compile(rf'"((?:{FAMILIES})\.[a-z]\w+)"')
    sources = [p.read_text() for p in (ROOT / "bot").rglob("*.py") if "slack_emulator" not in p.parts]
    names = {name.replace("_", ".") for text in sources for name in by_client.findall(text)}
    names |= {name for text in sources for name in by_name.findall(text)}
    return names


def test_shortcuts_are_those_of_the_code() -> None:
    assert {s["callback_id"] for s in MANIFEST["features"]["shortcuts"]} == set(SHORTCUTS)


def test_command_and_every_verb_are_named() -> None:
    (command,) = MANIFEST["features"]["slash_commands"]
    assert command["command"] == "/responder"
    for verb in (verb for verb, command in COMMANDS.items() if command.summary):  # not aliases
        assert re.search(rf"\b{verb}\b", command["usage_hint"])


def test_the_events_are_those_that_the_code_handles() -> None:
    subscribed = MANIFEST["settings"]["event_subscriptions"]["bot_events"]
    assert sorted(subscribed) == sorted({*EVENTS, *CHANNEL_EVENTS})


def test_the_scopes_are_those_that_the_methods_and_events_need() -> None:
    assert called() <= set(NEEDED), "add the scopes of this method to NEEDED"
    events = MANIFEST["settings"]["event_subscriptions"]["bot_events"]
    needed = [scope for method in called() for scope in NEEDED[method]]
    needed += [scope for event in events for scope in EVENT_SCOPES.get(event, ())]
    # The slash command and shortcuts, the metadata by which a post is found, and what is posted to a person.
    others = {"commands", "metadata.message:read", "im:write"}
    assert set(MANIFEST["oauth_config"]["scopes"]["bot"]) == {*needed, *others}


def test_doctor_says_what_each_optional_scope_costs() -> None:
    scopes = MANIFEST["oauth_config"]["scopes"]
    assert set(scopes["bot_optional"]) == set(LEFT_OUT) <= set(scopes["bot"])


def test_manifest_uses_socket_mode() -> None:
    assert MANIFEST["settings"]["socket_mode_enabled"] is True
    assert "request_url" not in (ROOT / "manifest.yml").read_text()
