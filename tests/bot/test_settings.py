"""The bot's settings: file, environment, and a sentence for everything wrong."""

from pathlib import Path

import pytest

from bot.settings import BotSettings, load, parse
from core.errors import ResponderBotError

FILE = """
[core]
port = 9000

[bot]
core_url = "http://127.0.0.1:9100"
database = "kept/slack.db"

[slack]
bot_token = "xoxb-from-file"

[[channel]]
id = "C0123"
clearance = "amber"
alerts = { severity_at_least = 2, sources = ["siem"] }
"""


def written(folder: Path, text: str = FILE) -> Path:
    file = folder / "settings.toml"
    file.write_text(text)
    return file


def test_the_file_is_read_and_paths_are_relative_to_it(tmp_path: Path) -> None:
    settings = load(written(tmp_path), {})
    assert settings.bot.core_url == "http://127.0.0.1:9100"
    assert settings.bot.database == tmp_path / "kept/slack.db"
    (channel,) = settings.channel
    assert (channel.id, channel.clearance) == ("C0123", 2)


def test_no_file_means_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(None, {})
    assert (settings.slack.port, settings.slack.command, settings.slack.link_by_email) == (3000, "/responder", False)


def test_the_environment_wins_over_the_file_and_ours_over_slacks(tmp_path: Path) -> None:
    file = written(tmp_path)
    assert load(file, {"SLACK_BOT_TOKEN": "xoxb-slack"}).slack.bot_token == "xoxb-slack"
    ours = {"SLACK_BOT_TOKEN": "xoxb-slack", "RESPONDER_BOT_SLACK_BOT_TOKEN": "xoxb-ours"}
    assert load(file, ours).slack.bot_token == "xoxb-ours"
    assert load(file, {"RESPONDER_BOT_SLACK_PORT": "3100"}).slack.port == 3100
    assert load(file, {"SLACK_API_URL": "http://127.0.0.1:1/api/"}).slack.api_url == "http://127.0.0.1:1/api/"


def test_a_secret_may_stand_in_a_file_but_not_twice(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    named = {"RESPONDER_BOT_BOT_CORE_API_KEY_FILE": str(tmp_path / "key")}
    assert load(written(tmp_path), named).bot.core_api_key == "secret"
    with pytest.raises(ResponderBotError, match="unset one of them"):
        load(written(tmp_path), {**named, "RESPONDER_BOT_BOT_CORE_API_KEY": "other"})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[slack]\nbot_tokn = 'x'", 'did you mean "bot_token"'),
        ("[chanel]\nid = 'x'", 'did you mean "channel"'),
        ("[[channel]]\nid = 'C1'\nclearence = 'red'", 'did you mean "clearance"'),
        ("[[channel]]\nid = 'C1'\nclearance = 'red'\nalerts = { source = ['x'] }", 'did you mean "sources"'),
        ("[[channel]]\nid = 'C1'", "needs a value for clearance"),
        ("[[channel]]\nid = 'C1'\nclearance = 'pink'", "is one of clear, green, amber, red"),
        ("[[channel]]\nid = 'C1'\nclearance = 'red'\n[[channel]]\nid = 'C1'\nclearance = 'red'", "stands twice"),
        ("[slack]\nport = 70000", "[slack] port"),
        ("slack = 3", "is to be a table"),
        ("[slack", "is no TOML"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ResponderBotError, match=r".*") as wrong:
        load(written(tmp_path, text), {})
    assert sentence in wrong.value.message
    assert "\n" not in wrong.value.message.removesuffix("\n") or "TOML" in wrong.value.message


def test_an_alert_is_routed_by_severity_source_type_and_tag() -> None:
    channel = {"id": "C1", "clearance": "red", "alerts": {"severity_at_least": 3, "sources": ["siem"], "tags": ["vip"]}}
    settings: BotSettings = parse({"channel": [channel]}, Path())
    route = settings.channel[0].alerts
    assert route is not None
    assert route.takes(severity=3, source="siem", type="x", tags=["vip", "y"])
    assert not route.takes(severity=2, source="siem", type="x", tags=["vip"])
    assert not route.takes(severity=4, source="edr", type="x", tags=["vip"])
    assert not route.takes(severity=4, source="siem", type="x", tags=[])
