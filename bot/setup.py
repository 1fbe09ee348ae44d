"""`responder-bot setup`: connects to Slack question by question, tries it with an alert, and writes the settings."""

import asyncio
import hmac
import os
import re
import tempfile
import tomllib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bot.app import Bot
from bot.app.transports import web_client
from bot.doctor import other_app, scopes_check
from bot.outbox.errors import SLACK_FAILURES, classify, headers_of
from bot.settings import BotSettings, SlackSection, bot_settings
from core.app import Core
from core.client import CoreClient
from core.common.clock import now_ms
from core.common.errors import ResponderBotError
from core.common.settings_file import Sections
from core.engines.confinement import Mode
from core.models import SEVERITY_NAMES, TLP_NAMES, Profile
from core.settings import CoreSettings, core_settings, database_problem

T = TypeVar("T")
Start = Callable[[CoreSettings, BotSettings], AbstractAsyncContextManager[tuple[Core, Bot, str]]]
"""Runs core and the bot; gives core's URL, too."""

SOURCE, READER = "siem", "firewall"  # the logins of the first programs
POSTED_WITHIN_S = 30.0
POLL_S = 0.2

PROMPTS: Mapping[str, tuple[str, str]] = {
    "bot-token": (
        "1. The app. At https://api.slack.com/apps press Create New App, choose From a manifest, paste manifest.yml of "
        "this folder, and press Create and Install. OAuth & Permissions then has the token.",
        "Bot User OAuth Token (xoxb-...): ",
    ),
    "app-token": (
        "2. Socket Mode. Basic Information > App-Level Tokens > Generate, with the scope connections:write.",
        "App-level token (xapp-...): ",
    ),
    "channel": (
        "3. The channel for alerts. The bot is in {channels}; /invite @{bot} in another adds it there.",
        "Channel{default}: ",
    ),
    "clearance": ("", f"The highest TLP that it may show: {', '.join(TLP_NAMES)} [amber]: "),
    "severity": ("", f"Alerts from which severity on: {', '.join(SEVERITY_NAMES[1:])} [medium]: "),
    "person": (
        "4. The first org-admin, by their member ID (in their Slack profile: ⋮ > Copy member ID).",
        "Member ID: ",
    ),
    "code": (
        "   The bot has sent them a code (in Slack, under its Messages).",
        "Code, or nothing for somebody else: ",
    ),
    "login": ("", "Their login in responder-bot [admin]: "),
}
"""What is said once, and then asked until the answer is right, by the option that answers it."""


class Setup:
    """One run of setup."""

    def __init__(
        self,
        options: Mapping[str, str],
        environment: Mapping[str, str],
        file: Path,
        ask: Callable[[str, bool], str] | None,
        say: Callable[[str], None],
        start: Start,
        manifest: Mapping[str, Any],
    ) -> None:
        """`ask` shows a prompt and returns what is typed, unseen if it is a secret; None without a terminal."""
        self._section = section = bot_settings(Sections(file.parent, "the environment", {}, environment)).slack
        self._options = {"bot-token": section.bot_token, "app-token": section.app_token, **options}
        self._environment, self._file, self._ask, self._say = environment, file, ask, say
        self._start, self._manifest, self._runner = start, manifest, asyncio.Runner()
        self._bot: dict[str, Any] = {}
        """What Slack says of the bot's token."""

    def run(self, confinement: Mode, sentence: str) -> None:
        """Ask for what the options lack, try it, and write the file, with this confinement, which a sentence explains.

        Raises ResponderBotError if the file exists or can't be written, if something is missing or wrong and there is
        nobody to ask, or if the test alert doesn't arrive; no settings are written then.
        """
        if os.path.lexists(self._file):
            raise _wrong(f"{self._file} exists, and setup replaces no settings; name another file with --config.")
        try:
            tempfile.TemporaryFile(dir=self._file.parent).close()
        except OSError as error:
            raise self._not_writable(error) from error
        needed = ("bot-token", "app-token", "channel", "person")
        if self._ask is None and (missing := [f"--{name}" for name in needed if not self._options.get(name)]):
            raise _wrong(f"There is no terminal to ask on; give {', '.join(missing)}.")
        with self._runner:  # which leaves Ctrl-C to `ask`, as a loop that runs would not
            self._run(confinement, sentence)

    def _run(self, confinement: Mode, sentence: str) -> None:
        token = self._answer("bot-token", self._check_bot_token)
        app_token = self._answer("app-token", self._check_app_token)
        channel = self._channel()
        if channel.get("is_ext_shared") or channel.get("is_pending_ext_shared"):
            self._say(f"   #{channel['name']} is shared with another company, so it shows TLP:CLEAR and nothing above.")
        clearance = self._answer("clearance", _one_of(TLP_NAMES, "amber"))
        severity = SEVERITY_NAMES.index(self._answer("severity", _one_of(SEVERITY_NAMES[1:], "medium")))
        person = self._person()
        login = self._answer("login", _login)
        self._say(f"5. Responders: {sentence}.\n6. A test alert. Core and the bot start for it.")
        api_url = "" if self._section.api_url == SlackSection().api_url else f'api_url = "{self._section.api_url}"\n'
        text = (
            "# Made by `responder-bot setup`. core/settings.example.toml has every setting with its default.\n"
            + ("" if confinement == "landlock" else f'[core]\nconfinement = "{confinement}"\n\n')
            + f'[slack]\nbot_token = "{token}"\napp_token = "{app_token}"\n{api_url}\n'
            + f'[[channel]]\nid = "{channel["id"]}"  # #{channel["name"]}\n'
            + f'clearance = "{clearance}"  # the highest TLP that it shows\n'
            + f'alerts = {{ severity_at_least = {severity}, sources = ["*"] }}\n'
            + f'mention = {{ critical = "{person}" }}  # whose phone rings: a person, or a user group (S0123456789)\n'
        )
        keys = self._runner.run(self._try(tomllib.loads(text), channel, severity, login, person))
        try:
            with open(os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
        except OSError as error:
            raise self._not_writable(error) from error
        self._say(f"   It is in #{channel['name']}. The settings are in {self._file}.\n{keys}")
        self._say("Next: `responder-bot serve`, and /responder help in the channel; `responder-bot doctor` checks all.")

    def _not_writable(self, error: OSError) -> ResponderBotError:
        return _wrong(f"{self._file} can't be written ({error.strerror}); name another file with --config.")

    def _answer(self, name: str, check: Callable[[str], Coroutine[Any, Any, T]], **words: Any) -> T:
        """The first answer that passes `check`. Raises its error if there is nobody to ask."""
        text = self._options.get(name, "")
        explanation, question = (part.format(**words) for part in PROMPTS[name])
        if self._ask is not None and not text and explanation:
            self._say(explanation)
        while True:
            if self._ask is not None and not text:
                text = self._ask(f"   {question}", name.endswith("token"))
            try:
                answer: T = self._runner.run(check(text.strip()))
            except ResponderBotError as error:
                if self._ask is None:
                    raise
                self._say(f"   {error.message}")
                text = ""
            else:
                return answer

    async def _slack(self, method: str, cure: str, token: str = "", **params: Any) -> AsyncSlackResponse:
        """Slack's answer. Raises ResponderBotError with what to do where it refuses."""
        try:
            return await web_client(token or self._section.bot_token, self._section).api_call(method, params=params)
        except SLACK_FAILURES as error:
            failure = classify(error)
            refused = f"Slack refuses it ({failure.code}); {cure}."
            raise _wrong(failure.message if failure.is_temporary else refused) from error

    async def _check_bot_token(self, text: str) -> str:
        if not re.fullmatch(r"xoxb-[\w-]+", text):
            raise _wrong("That is not the bot's token, which begins with xoxb-; copy it from OAuth & Permissions.")
        answer = await self._slack("auth.test", "copy it again from OAuth & Permissions", text)
        self._bot = {name: answer[name] for name in ("bot_id", "team_id", "user")}
        scopes = scopes_check(headers_of(answer).get("x-oauth-scopes"), self._manifest)
        if not scopes.ok:
            raise _wrong(f"The app has not the scopes of the manifest ({scopes.message}).")
        self._section = self._section.model_copy(update={"bot_token": text})
        return text

    async def _check_app_token(self, text: str) -> str:
        if not re.fullmatch(r"xapp-[\w-]+", text):
            raise _wrong("That is no app-level token, which begins with xapp-; generate one in Basic Information.")
        if problem := await other_app(web_client(self._section.bot_token, self._section), self._bot["bot_id"], text):
            raise _wrong(f"{problem[0].upper()}{problem[1:]}.")
        await self._slack("apps.connections.open", "generate one with connections:write, and enable Socket Mode", text)
        return text

    def _channel(self) -> Mapping[str, Any]:
        async def find(text: str) -> Mapping[str, Any]:
            for channel in await self._channels():
                if (text or default).removeprefix("#") in (channel["name"], channel["id"]):
                    return channel
            raise _wrong(f"The bot is not in {text!r}; type /invite @{self._bot['user']} there, then name it here.")

        names = [f"#{channel['name']}" for channel in self._runner.run(self._channels())]
        default = names[0] if len(names) == 1 else ""
        known = ", ".join(names) or "none yet"
        return self._answer("channel", find, channels=known, bot=self._bot["user"], default=default and f" [{default}]")

    async def _channels(self) -> Sequence[Mapping[str, Any]]:
        """The channels that the bot is in, by name."""
        found: list[Mapping[str, Any]] = []
        page: dict[str, Any] = {
            "types": "public_channel,private_channel",
            "exclude_archived": "true",
            "limit": 200,
            "cursor": "",
        }
        while True:
            answer = await self._slack("users.conversations", "run setup again, later", **page)
            found += answer["channels"]
            page["cursor"] = (answer.get("response_metadata") or {}).get("next_cursor") or ""
            if not page["cursor"]:
                return sorted(found, key=lambda channel: str(channel["name"]))

    def _person(self) -> str:
        """The Slack id of the org-admin, once somebody has typed the code that the bot sent them."""
        while True:
            person = self._answer("person", self._send_code)
            if self._ask is None and not self._options.get("code"):
                raise _wrong(f"The bot has sent {person} a code; run this again with --code and that code.")
            expected = _code(self._section.bot_token, person)

            async def compare(text: str, expected: str = expected) -> bool:
                if text and not hmac.compare_digest(text.encode(), expected.encode()):
                    raise _wrong("That is not the code of the bot's last direct message to them.")
                return bool(text)

            if self._answer("code", compare):
                return person
            self._options = {**self._options, "person": "", "code": ""}

    async def _send_code(self, text: str) -> str:
        if not re.fullmatch(r"[UW][A-Z0-9]+", text):
            raise _wrong(f"{text!r} is no member ID, such as U0123ABCD.")
        if not self._options.get("code"):
            words = f"{_code(self._section.bot_token, text)} is your code for `responder-bot setup`."
            words = f"{words} Whoever types it there makes you the first org-admin."
            cure = "copy the member ID of a person in this workspace"
            await self._slack("chat.postMessage", cure, channel=text, text=words)
        return text

    async def _try(
        self, tables: Mapping[str, Any], channel: Mapping[str, Any], severity: int, login: str, person: str
    ) -> str:
        """Have an alert arrive in the channel, then add the org-admin. Returns what to tell about the keys."""
        sections = Sections(self._file.parent, str(self._file), tables, self._environment)
        core_part, bot_part = core_settings(sections), bot_settings(sections)
        if problem := database_problem(core_part):
            raise _wrong(problem)
        core_part = core_part.model_copy(update={"core": core_part.core.model_copy(update={"port": 0})})
        alert = {
            **{"type": "setup", "source": SOURCE, "sourceRef": f"setup-{now_ms()}", "severity": severity, "tlp": 0},
            "title": "Test alert of responder-bot setup",
            "description": "Alerts reach this channel. The observable is an address for documentation.",
            "artifacts": [{"dataType": "ip", "data": "192.0.2.1"}],
        }
        async with self._start(core_part, bot_part) as (core, bot, url):
            keys = await _key(core, SOURCE, "source", "sends alerts")
            async with CoreClient(url, await core.people.temporary_key(SOURCE, "source")) as source:
                await _until_posted(bot, (await source.create_alert(alert)).id, channel)
            slack_id = f"{self._bot['team_id']}:{person}"
            try:
                await core.people.add(login, "org-admin", clearance=TLP_NAMES.index("red"), slack_id=slack_id)
            except ResponderBotError:
                linked = await core.people.slack_users(core.people.full_login(login))
                if slack_id not in linked.slack_ids:  # else a setup was stopped after it had added them
                    raise
            return f"{keys}\n{await _key(core, READER, 'reader', 'reads the block list')}"


async def _key(core: Core, login: str, profile: Profile, use: str) -> str:
    """Add a program's user. Returns its key in a sentence, or how to get another one if there is that user."""
    try:
        return f"   The key of {login}, which {use}; it is not shown again:\n   {await core.people.add(login, profile)}"
    except ResponderBotError as error:
        if error.code != "exists":
            raise
        return f"   {login}, which {use}, is there already: `responder-bot user key {login}` prints a new key."


async def _until_posted(bot: Bot, alert_id: str, channel: Mapping[str, Any]) -> None:
    """Wait until the alert's card is in the channel. Raises ResponderBotError with why it isn't."""
    for _ in range(round(POSTED_WITHIN_S / POLL_S)):
        if bot.connected.is_set() and any(card.ts for card in await bot.outbox.cards(alert_id)):
            return
        if refused := [found.message for found in await bot.outbox.problems() if found.channel == channel["id"]]:
            raise _wrong(refused[0])
        await asyncio.sleep(POLL_S)
    sentence = f"The test alert has not arrived in #{channel['name']} (Socket Mode: {bot.transport.check().message})"
    raise ResponderBotError("unavailable", f"{sentence}; run setup again.")


def _wrong(sentence: str) -> ResponderBotError:
    return ResponderBotError("bad_request", sentence)


def _one_of(names: Sequence[str], default: str) -> Callable[[str], Coroutine[Any, Any, str]]:
    async def check(text: str) -> str:
        name = text.lower() or default
        if name not in names:
            raise _wrong(f"{text!r} is none of {', '.join(names)}.")
        return name

    return check


async def _login(text: str) -> str:
    if not re.fullmatch(r"[\w.@-]*", text, re.ASCII):
        raise _wrong(f"{text!r} can't be a login; take a name such as anna.")
    return text or "admin"


def _code(bot_token: str, person: str) -> str:
    """The code of a person on this day, so that setup without a terminal, started again, takes what it sent before."""
    day = datetime.now(UTC).date().isoformat()
    digest = hmac.digest(bot_token.encode(), f"setup {person} {day}".encode(), "sha256")
    return f"{int.from_bytes(digest[:8]) % 1_000_000:06}"
