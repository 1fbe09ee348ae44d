"""`responder-bot setup` against the emulator: every answer wrong once, every question left, and a second start."""

import asyncio
import os
import pty
import re
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot import setup
from bot.app import Bot
from bot.cli import core_and_bot
from bot.settings import BotSettings
from bot.slack_emulator import SlackEmulator
from core.app import Core
from core.common.errors import ResponderBotError
from core.engines.confinement import Mode
from core.settings import CoreSettings
from core.settings import load as load_core
from tests.bot.people import Person
from tests.bot.samples import load
from tests.documents import ROOT

MANIFEST: Mapping[str, Any] = yaml.safe_load((ROOT / "manifest.yml").read_text())
ANNA = "U0ANNA"
QUESTIONS = ("bot-token", "app-token", "channel", "clearance", "severity", "person", "code", "login")
FIRST_WORDS = ("Bot User", "App-level", "Channel", "The highest", "Alerts", "Member", "Code", "Their login")
WORDS = dict(zip(FIRST_WORDS, QUESTIONS, strict=True))
CODE = object()
"""The answer that is in the bot's last direct message."""


class Workspace:
    """An emulated workspace, and setup at a scripted terminal."""

    def __init__(self, emulator: SlackEmulator, folder: Path) -> None:
        self.emulator, self.file = emulator, folder / "responder-bot.toml"
        self.said: list[str] = []
        self.mode: Mode = "landlock"

    async def code(self, person: str = ANNA) -> str:
        async with Person(self.emulator.url, self.emulator.page_token, person) as user:
            texts = [m["text"] for c in user.live_view.channels for m in user.live_view.messages(c)]
        return [found[1] for text in texts if (found := re.match(r"(\d{6}) is your code", text))][-1]

    def right(self) -> dict[str, Any]:
        emulator = self.emulator
        return {"bot-token": emulator.bot_token, "app-token": emulator.app_token, "channel": "", "clearance": "",
                "severity": "high", "person": ANNA, "code": CODE, "login": "anna"}  # fmt: skip

    async def run(
        self,
        answers: Mapping[str, Sequence[Any]] | None = None,
        options: Mapping[str, str] | None = None,
        *,
        before: Callable[[str], None] = lambda _: None,
        at_trial: Callable[[], None] = lambda: None,
        after_trial: Callable[[], None] = lambda: None,
        code_of: str = ANNA,
    ) -> None:
        """Run setup in a thread of its own; without `answers` there is no terminal."""
        loop = asyncio.get_running_loop()
        queues = {name: list(texts) for name, texts in (answers or {}).items()}

        @asynccontextmanager
        async def start(core: CoreSettings, bot: BotSettings) -> AsyncIterator[tuple[Core, Bot, str]]:
            async with core_and_bot(core, bot) as running:
                at_trial()
                yield running
                after_trial()

        def ask(prompt: str, is_secret: bool) -> str:
            (name,) = (name for start, name in WORDS.items() if prompt.strip().startswith(start))
            assert is_secret == name.endswith("token")
            self.said.append(f"? {name}")
            before(name)
            answer = queues[name].pop(0)
            if isinstance(answer, BaseException):
                raise answer
            return (
                asyncio.run_coroutine_threadsafe(self.code(code_of), loop).result(20) if answer is CODE else str(answer)
            )

        asked = None if answers is None else ask
        environment = {"SLACK_API_URL": self.emulator.api_url}
        run = setup.Setup(options or {}, environment, self.file, asked, self.said.append, start, MANIFEST).run
        await asyncio.to_thread(run, self.mode, "sentence")

    def invite(self, channel: str = "C0SOC", *, is_shared: bool = False) -> None:
        members = [ANNA, "U0BEN"]
        self.emulator.add_channel(channel, name=channel[2:].lower(), members=members, is_shared=is_shared)


@asynccontextmanager
async def workspace(
    folder: Path, manifest: Mapping[str, Any] = MANIFEST, *, invited: bool = True
) -> AsyncIterator[Workspace]:
    emulator = SlackEmulator(manifest, rates=False)
    emulator.add_user(ANNA, name="anna", real_name="Anna")
    emulator.add_user("U0BEN", name="ben", real_name="Ben")
    emulator.add_channel("C0ELSE", name="else", members=[ANNA], bot=False)
    async with emulator:
        found = Workspace(emulator, folder)
        if invited:
            found.invite()
        yield found


async def test_every_answer_may_be_wrong_once(tmp_path: Path) -> None:
    async with workspace(tmp_path, invited=False) as slack:
        right, app = slack.right(), slack.emulator.app_token

        def invite(question: str) -> None:
            if question == "channel" and slack.said.count("? channel") == 2:
                slack.invite()

        answers = {
            "bot-token": [app, "xoxb-wrong", right["bot-token"]],
            "app-token": [right["bot-token"], "xapp-1-A0OTHER-1-x", app + "x", app],
            "channel": ["#soc", "else", "#soc"],
            "clearance": ["purple", "green"],
            "severity": ["5", "high"],
            "person": ["anna", "U0NOBODY", "U0BEN", ANNA],
            "code": ["", "000000 ", CODE],
            "login": ["an na", "anna"],
        }
        await slack.run(answers, before=invite)
        said = "\n".join(slack.said)
        assert said.count("1. The app.") == 1  # a wrong answer has only the question asked again
        for sentence in (
            "That is not the bot's token, which begins with xoxb-",
            "Slack refuses it (invalid_auth); copy it again from OAuth & Permissions.",
            "That is no app-level token, which begins with xapp-",
            "The app token is of the app A0OTHER, the bot's token of A0LOCAL; take both of one app.",
            "Slack refuses it (invalid_auth); generate one with connections:write, and enable Socket Mode.",
            "The bot is not in '#soc'; type /invite @responderbot there, then name it here.",
            "The bot is not in 'else'",
            "'purple' is none of clear, green, amber, red.",
            "'5' is none of low, medium, high, critical.",
            "'anna' is no member ID, such as U0123ABCD.",
            "copy the member ID of a person in this workspace.",
            "That is not the code of the bot's last direct message to them.",
            "'an na' can't be a login; take a name such as anna.",
        ):
            assert sentence in said, sentence
        assert stat.S_IMODE(slack.file.stat().st_mode) == 0o600
        settings = load(slack.file, {})
        (channel,) = settings.channel
        assert channel.alerts is not None
        assert (channel.id, channel.clearance, channel.alerts.severity_at_least) == ("C0SOC", 1, 3)
        assert channel.mention == {"critical": ANNA}
        assert settings.slack.app_token == app
        assert load_core(slack.file, {}).core.confinement == "landlock"
        assert re.search(r"The key of siem, .*:\n   \S{43}\n   The key of firewall, .*:\n   \S{43}$", said, re.M)
        async with Person(slack.emulator.url, slack.emulator.page_token, ANNA) as anna:
            assert any("Test alert of responder-bot setup" in str(m) for m in anna.live_view.messages("C0SOC"))
        with pytest.raises(ResponderBotError, match="exists, and setup replaces no settings"):
            await slack.run({})


def once(answers: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    return {name: [answer] for name, answer in answers.items()}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_who_leaves_at_a_question_finds_nothing_written_and_may_start_again(
    tmp_path: Path, question: str
) -> None:
    async with workspace(tmp_path) as slack:
        with pytest.raises(KeyboardInterrupt):
            await slack.run(once({**slack.right(), question: KeyboardInterrupt()}))
        assert slack.said[-1] == f"? {question}"
        assert list(tmp_path.iterdir()) == []


async def test_who_leaves_during_the_trial_may_start_again(tmp_path: Path) -> None:
    async with workspace(tmp_path) as slack:
        with pytest.raises(KeyboardInterrupt):
            await slack.run(once(slack.right()), after_trial=leave)
        assert not slack.file.exists()
        await slack.run(once(slack.right()))
        assert load(slack.file, {}).channel[0].id == "C0SOC"
        assert any("siem, which sends alerts, is there already: `responder-bot user key siem`" in s for s in slack.said)


def leave() -> None:
    raise KeyboardInterrupt


async def test_a_second_start_links_nobody_else_to_the_same_login(tmp_path: Path) -> None:
    async with workspace(tmp_path) as slack:
        await slack.run(once(slack.right()))
        slack.file.unlink()
        with pytest.raises(ResponderBotError, match=r"anna@responder-bot\.local"):
            await slack.run(once({**slack.right(), "person": "U0BEN"}), code_of="U0BEN")
        assert not slack.file.exists()
        await slack.run(once(slack.right()))
        assert slack.file.exists()


async def test_without_a_terminal_options_answer(tmp_path: Path) -> None:
    async with workspace(tmp_path) as slack:
        slack.invite("C0OUT", is_shared=True)
        with pytest.raises(ResponderBotError) as missing:
            await slack.run(options={"channel": "soc", "bot-token": slack.emulator.bot_token})
        assert missing.value.message == "There is no terminal to ask on; give --app-token, --person."
        options = {
            "bot-token": slack.emulator.bot_token,
            "app-token": slack.emulator.app_token,
            "channel": "C0OUT",
            "person": ANNA,
        }
        with pytest.raises(ResponderBotError, match=r"run this again with --code and that code\.$"):
            await slack.run(options=options)
        with pytest.raises(ResponderBotError, match="That is not the code"):
            await slack.run(options={**options, "code": "000000"})
        assert list(tmp_path.iterdir()) == []
        slack.mode = "bwrap"
        await slack.run(options={**options, "code": await slack.code()})
        assert "   #out is shared with another company, so it shows TLP:CLEAR and nothing above." in slack.said
        assert load_core(slack.file, {}).core.confinement == "bwrap"
        assert load(slack.file, {}).channel[0].clearance == 2


async def test_an_app_without_a_scope_of_the_manifest_is_refused(tmp_path: Path) -> None:
    scopes = MANIFEST["oauth_config"]["scopes"]
    fewer = {**scopes, "bot": [scope for scope in scopes["bot"] if scope != "files:write"]}
    async with workspace(tmp_path, {**MANIFEST, "oauth_config": {"scopes": fewer}}) as slack:
        with pytest.raises(KeyboardInterrupt):
            await slack.run({"bot-token": [slack.emulator.bot_token, KeyboardInterrupt()]})
        assert "The app has not the scopes of the manifest (missing: files:write; reinstall" in slack.said[2]


@pytest.mark.parametrize("where", ["absent/responder-bot.toml", "file/responder-bot.toml"])
async def test_a_folder_that_cannot_be_written_to_is_named_before_any_question(tmp_path: Path, where: str) -> None:
    (tmp_path / "file").touch()
    async with workspace(tmp_path) as slack:
        slack.file = tmp_path / where
        with pytest.raises(ResponderBotError, match=r"can't be written \(.*\); name another file with --config\.$"):
            await slack.run({})
        assert slack.said == []


async def test_nothing_is_written_where_the_alert_does_not_arrive(tmp_path: Path) -> None:
    async with workspace(tmp_path) as slack:

        def refuse() -> None:
            slack.emulator.faults.error("chat.postMessage", "restricted_action", times=9)

        with pytest.raises(ResponderBotError, match=r"Slack refuses messages to C0SOC \(restricted_action\)\."):
            await slack.run(once(slack.right()), at_trial=refuse)
        assert not slack.file.exists()


def test_ctrl_c_at_a_terminal_leaves_with_130_and_nothing_written(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    # What a session's first process opens is its terminal. A job in the background starts with SIGINT ignored.
    start = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "[os.dup2(os.open(sys.argv[1], os.O_RDWR), number) for number in range(3)]\n"
        "from bot.cli import main; sys.exit(main(['setup']))"
    )
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-c", start, os.ttyname(theirs)]
    with subprocess.Popen(arguments, cwd=tmp_path, env=environment, start_new_session=True) as process:
        shown = os.read(ours, 4096)
        os.close(theirs)  # so that reading fails once the process has ended
        while b"xoxb-...): " not in shown:
            shown += os.read(ours, 4096)
        code = None
        while code is None:  # Python doesn't see a signal just before it reads, so people press again
            os.write(ours, b"\x03")
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(10)
        assert code == 130
    assert b"Stopped before settings were written; run setup again." in os.read(ours, 4096)
    os.close(ours)
    assert list(tmp_path.iterdir()) == []
