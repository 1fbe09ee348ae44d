"""The bot's settings: file, environment, and a sentence for each mistake."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bot.settings import BotSection, BotSettings, ChannelSection, Route, SlackSection, parse
from core.common.errors import ResponderBotError
from core.common.settings_file import checked, expected
from core.settings import CoreSection, EngineSection, ResponderSection
from tests.bot.samples import load

FILE = """
[core]
port = 9000
database = "kept/core.db"

[bot]
core_url = "http://127.0.0.1:9100"

[slack]
bot_token = "xoxb-from-file"

[[channel]]
id = "C0123"
clearance = "amber"
alerts = { severity_at_least = 2, sources = ["siem"] }
"""


def write(folder: Path, text: str = FILE) -> Path:
    file = folder / "settings.toml"
    file.write_text(text)
    return file


def test_paths_are_relative_to_the_settings_file(tmp_path: Path) -> None:
    settings = load(write(tmp_path), {})
    assert settings.bot.core_url == "http://127.0.0.1:9100"
    assert settings.core.database == tmp_path / "kept/core.db"
    (channel,) = settings.channel
    assert (channel.id, channel.clearance) == ("C0123", 2)


def test_defaults_apply_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load(None, {})
    assert (settings.slack.port, settings.slack.command, settings.slack.link_by_email) == (3000, "/responder", False)


def test_environment_overrides_the_file(tmp_path: Path) -> None:
    file = write(tmp_path)
    assert load(file, {"SLACK_BOT_TOKEN": "xoxb-slack"}).slack.bot_token == "xoxb-slack"
    ours = {"SLACK_BOT_TOKEN": "xoxb-slack", "RESPONDER_BOT_SLACK_BOT_TOKEN": "xoxb-ours"}
    assert load(file, ours).slack.bot_token == "xoxb-ours"
    assert load(file, {"RESPONDER_BOT_SLACK_PORT": "3100"}).slack.port == 3100
    assert load(file, {"SLACK_API_URL": "http://127.0.0.1:1/api/"}).slack.api_url == "http://127.0.0.1:1/api/"


def test_a_channel_mentions_user_groups_and_people_by_their_ids(tmp_path: Path) -> None:
    text = "[[channel]]\nid = 'C1'\nclearance = 'red'\nmention = { critical = 'S1', high = 'U0LEA' }"
    loaded = load(write(tmp_path, text), {})
    assert loaded.channel[0].mention == {"critical": "S1", "high": "U0LEA"}


def test_secret_may_come_from_a_file_but_not_twice(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    named = {"RESPONDER_BOT_BOT_CORE_API_KEY_FILE": str(tmp_path / "key")}
    assert load(write(tmp_path), named).bot.core_api_key == "secret"
    with pytest.raises(ResponderBotError, match="unset one of them"):
        load(write(tmp_path), {**named, "RESPONDER_BOT_BOT_CORE_API_KEY": "other"})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[slack]\nbot_tokn = 'x'", 'did you mean "bot_token"'),
        ("[chanel]\nid = 'x'", 'did you mean "channel"'),
        ("[[channel]]\nid = 'C1'\nclearence = 'red'", 'did you mean "clearance"'),
        ("[[channel]]\nid = 'C1'\nclearance = 'red'\nalerts = { source = ['x'] }", 'did you mean "sources"'),
        ("[[channel]]\nid = 'C1'", "needs a value for clearance: one of clear, green, amber, red."),
        ("[[channel]]\nid = 'C1'\nclearance = 'pink'", "clearance must be one of clear, green, amber, red."),
        ("[[channel]]\nid = 'C1'\nclearance = 'red'\n[[channel]]\nid = 'C1'\nclearance = 'red'", "stands twice"),
        ("[[channel]]\nid = '#soc'\nclearance = 'red'", "id must be the channel's id, such as C0123456789, "),
        (
            "[[channel]]\nid = 'C1'\nclearance = 'red'\nalerts = { severity_at_least = 9 }",
            "alerts.severity_at_least must be a whole number from 1 to 4.",
        ),
        (
            "[[channel]]\nid = 'C1'\nclearance = 'red'\nmention = { critical = '@oncall' }",
            "mention must be a table of who is mentioned about a new alert, such as { critical = ",
        ),
        (
            "[[channel]]\nid = 'C1'\nclearance = 'red'\nmention = { critical = 'lea' }",
            "the id of a user group in Slack",
        ),
        ("[[channel]]\nid = 'C1'\nclearance = 'red'\nmention = { fatal = 'S1' }", "mention"),
        ("[slack]\nport = 70000", "[slack] port must be a whole number from 0 to 65535."),
        ("[slack]\nbot_token = 'xapp-1'", "bot_token must be the bot's token, xoxb-...; what begins with xapp-"),
        ("[slack]\napp_token = 'xoxb-1'", "app_token must be the app's token, xapp-...; what begins with xoxb-"),
        ("[bot]\ncore_url = '127.0.0.1:9000'", "core_url must be an address such as http://127.0.0.1:9000."),
        ("[core]\ndatabase = 'mysql://bot@db/bot'", "[core] database must be the path of a SQLite file, such as"),
        ("slack = 3", "must be a table"),
        ("[slack", "is not valid TOML"),
    ],
)
def test_invalid_settings_are_explained_in_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ResponderBotError, match=r".*") as wrong:
        load(write(tmp_path, text), {})
    assert sentence in wrong.value.message
    assert "\n" not in wrong.value.message.removesuffix("\n") or "TOML" in wrong.value.message


SECTIONS: tuple[type[BaseModel], ...] = (
    CoreSection,
    EngineSection,
    ResponderSection,
    BotSection,
    SlackSection,
    ChannelSection,
    Route,
)
KEYS = [(section, key) for section in SECTIONS for key in section.model_fields]
TOML = st.recursive(
    st.booleans() | st.integers() | st.floats() | st.text() | st.datetimes() | st.dates(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=4,
)


@given(st.sampled_from(KEYS), TOML)
def test_any_value_is_accepted_or_refused_with_what_is_expected(
    key: tuple[type[BaseModel], str], value: object
) -> None:
    section, name = key
    others = {"name": "local", "id": "C1", "clearance": "amber"}
    values = {other: ours for other, ours in others.items() if other in section.model_fields}
    try:
        checked(section, {**values, name: value}, "the file: [section]", Path())
    except ResponderBotError as refused:
        sentence = refused.message
        assert sentence.startswith(f"the file: [section] {name}")
        if " has no key " not in sentence:
            assert any(sentence.endswith(f" must be {expected(item)}.") for item in _items(section, name))
        assert not re.search("should|[Vv]alid|pydantic|[Ee]rror:", sentence)


def _items(section: type[BaseModel], name: str) -> list[FieldInfo]:
    inner = list(Route.model_fields.values()) if name == "alerts" else []
    return [section.model_fields[name], *inner]


@pytest.mark.parametrize(("section", "key"), KEYS)
def test_every_key_describes_its_values(section: type[BaseModel], key: str) -> None:
    words = expected(section.model_fields[key])
    assert re.match("(an? |one of |true or |the )", words), words


def test_api_url_may_lack_its_final_slash(tmp_path: Path) -> None:
    assert load(write(tmp_path, "[slack]\napi_url = 'http://127.0.0.1:1/api'"), {}).slack.api_url.endswith("/api/")


def test_route_matches_by_severity_source_and_tag() -> None:
    channel = {"id": "C1", "clearance": "red", "alerts": {"severity_at_least": 3, "sources": ["siem"], "tags": ["vip"]}}
    settings: BotSettings = parse({"channel": [channel]}, Path())
    route = settings.channel[0].alerts
    assert route is not None
    assert route.matches(severity=3, source="siem", type="x", tags=["vip", "y"])
    assert not route.matches(severity=2, source="siem", type="x", tags=["vip"])
    assert not route.matches(severity=4, source="edr", type="x", tags=["vip"])
    assert not route.matches(severity=4, source="siem", type="x", tags=[])
