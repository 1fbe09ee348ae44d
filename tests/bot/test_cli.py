"""The command line: fast help, and one sentence for each mistake of the user."""

import subprocess
import sys
from pathlib import Path

import pytest

from bot.cli import main
from tests import programs


def run(*args: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, with a minimal environment."""
    return programs.run("bot.cli", *args, cwd=folder, env={"PATH": "/usr/bin:/bin", **environment})


BOT = {
    "RESPONDER_BOT_BOT_CORE_URL": "http://127.0.0.1:9",
    "RESPONDER_BOT_BOT_CORE_API_KEY": "k",
    "SLACK_BOT_TOKEN": "xoxb-1",
    "SLACK_APP_TOKEN": "xapp-1",
}
"""The environment of a bot whose core doesn't answer."""


@pytest.mark.parametrize(
    "command",
    [
        "",
        "try",
        "setup",
        "serve",
        "core",
        "bot",
        "user",
        "responders",
        "health",
        "doctor",
        "backup",
        "restore",
        "store",
    ],
)
def test_every_command_has_help(capsys: pytest.CaptureFixture[str], command: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*command.split(), "--help"])
    told = capsys.readouterr().out
    assert ended.value.code == 0
    assert "usage: responder-bot" in told
    assert not command or "--config" in told


def test_help_imports_no_large_package(tmp_path: Path) -> None:
    code = "import sys, bot.cli; print(*[m for m in ('slack_sdk','aiohttp','pydantic','httpx') if m in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == ""


@pytest.mark.parametrize(
    ("args", "environment", "sentence"),
    [
        (["bot"], {}, "The bot has no key of core"),
        (["setup"], {}, "give --bot-token, --app-token, --channel, --person."),
        (["serve"], {}, "There is no Slack bot token"),
        (["serve"], {"SLACK_BOT_TOKEN": "xoxb-1"}, "Set [slack] app_token"),
        (["bot"], {"RESPONDER_BOT_BOT_CORE_API_KEY": "k"}, "There is no Slack bot token"),
        (
            ["bot"],
            {**BOT, "RESPONDER_BOT_CORE_DATABASE": "/dev/null/x/y"},
            "Core has no database in /dev/null/x/y; start core first, or name the one that it has",
        ),
        (["serve", "--config", "absent.toml"], {}, "absent.toml"),
        (["health"], BOT, "set [bot] health_port"),
        (["try", "--workspace-only", "--once"], {}, "leave out --once"),
        (["try", "--config", "mine.toml"], {}, "try has settings of its own, so leave out --config."),
        (["doctor", "--manifest", "http://example.org"], {}, "https"),
        (["frobnicate"], {}, "frobnicate"),
    ],
)
def test_user_error_is_one_sentence_and_exit_code_2(
    tmp_path: Path, args: list[str], environment: dict[str, str], sentence: str
) -> None:
    answer = run(*args, folder=tmp_path, **environment)
    assert answer.returncode == 2
    assert sentence in answer.stderr
    assert "Traceback" not in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_http_manifest_has_the_url_everywhere(tmp_path: Path) -> None:
    import yaml

    answer = run("doctor", "--manifest", "https://bot.example.org/", folder=tmp_path)
    tree = yaml.safe_load(answer.stdout)
    address = "https://bot.example.org/slack/events"
    assert tree["settings"]["socket_mode_enabled"] is False
    assert tree["settings"]["event_subscriptions"]["request_url"] == address
    assert tree["settings"]["interactivity"]["request_url"] == address
    assert tree["settings"]["interactivity"]["message_menu_options_url"] == address
    assert [command["url"] for command in tree["features"]["slash_commands"]] == [address]


def test_doctor_names_failures_and_exits_with_1(tmp_path: Path) -> None:
    answer = run("doctor", folder=tmp_path, RESPONDER_BOT_CORE_PORT="9")
    assert answer.returncode == 1
    assert "FAIL  core: " in answer.stdout
    assert "FAIL  token: " in answer.stdout
    assert list(tmp_path.iterdir()) == []  # a database that is missing is for the operator to see


def test_doctor_names_a_secret_that_can_t_be_read(tmp_path: Path) -> None:
    file = tmp_path / "responder-bot.toml"
    file.write_text('[responder."Mail_1_0".config]\nsmtp_password = { file = "secrets/mail" }\n')
    place = '[responder."Mail_1_0".config] smtp_password'
    sentence = f"FAIL  secrets: {place}: {tmp_path}/secrets/mail can't be read; correct path or rights."
    assert sentence in run("doctor", folder=tmp_path).stdout.splitlines()
    file.write_text(f'[bot]\ncore_url = "http://127.0.0.1:9"\n{file.read_text()}')
    assert "secrets" not in run("doctor", folder=tmp_path).stdout  # they are the other machine's


@pytest.mark.parametrize(
    ("text", "mode", "is_well"),
    [
        ('[slack]\nbot_token = "xoxb-1"\n', 0o644, False),
        ('[slack]\nbot_token = "xoxb-1"\n', 0o660, False),
        ('[slack]\nbot_token = "xoxb-1"\n', 0o640, True),
        ('[slack]\nbot_token = "xoxb-1"\n', 0o600, True),
        ('[responder."Mail_1_0".config]\nsmtp_password = "x"\n', 0o604, False),
        ('[responder."Hook_1_0".config]\nurl = "https://me:pw@example.org"\n', 0o604, False),
        ('[core]\nport = 9001\n[slack]\nbot_token = ""\n', 0o644, True),
    ],
)
def test_doctor_fails_if_others_can_read_a_file_with_secrets(
    tmp_path: Path, text: str, mode: int, is_well: bool
) -> None:
    file = tmp_path / "responder-bot.toml"
    file.write_text(text)
    file.chmod(mode)
    (line,) = [
        line
        for line in run("doctor", folder=tmp_path, RESPONDER_BOT_BOT_CORE_URL="http://127.0.0.1:9").stdout.splitlines()
        if line[6:].startswith("settings: ")
    ]
    if is_well:
        assert line == "ok    settings: responder-bot.toml, 0 channels"
    else:
        can = "change" if mode & 0o020 else "read"
        assert line == (
            f"FAIL  settings: the settings hold secrets, and others on this machine can {can} responder-bot.toml"
            f" (mode {mode:04o}); `chmod {mode & 0o750:o} responder-bot.toml`"
        )
