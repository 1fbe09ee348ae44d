"""`core/settings.example.toml` names every setting with its default."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from bot.settings import BotSection, ChannelSection, Route, SlackSection
from core.common.settings_file import SECTIONS, RetentionSection
from core.settings import (
    BlocklistSection,
    CoreSection,
    EngineSection,
    ProtectSection,
    ReaderSection,
    ResponderSection,
    SourceSection,
)
from core.settings import load as load_core
from tests.bot.samples import load as load_bot

EXAMPLE = Path(__file__).parent.parent / "core" / "settings.example.toml"
MODELS: Mapping[str, type[BaseModel]] = {
    "core": CoreSection,
    "engine": EngineSection,
    "responder": ResponderSection,
    "protect": ProtectSection,
    "retention": RetentionSection,
    "source": SourceSection,
    "blocklist": BlocklistSection,
    "reader": ReaderSection,
    "bot": BotSection,
    "slack": SlackSection,
    "channel": ChannelSection,
}
REST = "## "  # before a section of the first part, whose other keys follow
SETTING = re.compile(r"(?:#|## )?(\[+(?P<section>\w+).*|(?P<key>\w+) = (?P<value>.*?)\s+# (?P<comment>\S.*))")


def uncommented() -> str:
    """The example with its settings in force, each in its section; what follows `#` and a blank is prose."""
    sections: list[list[str]] = [[]]
    section = sections[0]
    for line in re.sub(r"^#(?=[\w\[])", "", EXAMPLE.read_text(), flags=re.M).splitlines():
        if line.startswith("["):
            sections.append([])
            section = sections[-1]
        if line.startswith(REST):
            section = next(found for found in reversed(sections) if found[:1] == [line.removeprefix(REST)])
        else:
            section.append(line)
    return "\n".join(line for section in sections for line in section)


def settings(text: str = EXAMPLE.read_text()) -> Iterator[tuple[str, str, Any, str]]:
    """Section, key, value and comment of each line that sets something."""
    section = ""
    for line in text.splitlines():
        if line in ("", "#") or line.startswith(("# ", "#:schema ")):
            continue
        match = SETTING.fullmatch(line)
        assert match is not None, f"a key needs a comment on its line: {line}"
        if match["section"]:
            section = match["section"]
        else:
            yield section, match["key"], tomllib.loads(f"value = {match['value']}")["value"], match["comment"]


def default_of(field: FieldInfo) -> Any:
    """The default as TOML has it; None where there is none."""
    if field.is_required():
        return None
    default = field.get_default(call_default_factory=True)
    if isinstance(default, Path):
        return str(default)
    return list(default) if isinstance(default, tuple) else default


def shows_default(field: FieldInfo, value: Any, comment: str) -> bool:
    """Whether the line shows the field's default, as its value or in its comment."""
    if field.is_required():
        return comment.startswith("required")
    default = default_of(field)
    _, _, named = comment.partition("default: ")
    if default is None:
        return bool(named)
    if isinstance(default, BaseModel):
        return bool(value == default.model_dump(mode="json"))
    return bool(value == default) or (bool(named) and tomllib.loads(f"value = {named}")["value"] == default)


def test_the_example_begins_with_what_nearly_every_installation_sets() -> None:
    first, _, _ = EXAMPLE.read_text().partition(f"\n{REST}")
    keys = {(section, key) for section, key, _, _ in settings(first)}
    assert len(keys) == 23
    assert {section for section, _ in keys} == {"core", "engine", "responder", "protect", "slack", "channel"}


def test_the_example_as_it_stands_changes_nothing(tmp_path: Path) -> None:
    empty, example = tmp_path / "empty.toml", tmp_path / "example.toml"
    empty.touch()
    example.write_text(EXAMPLE.read_text())
    assert load_core(example, {}) == load_core(empty, {})
    assert load_bot(example, {}) == load_bot(empty, {})


def test_the_example_loads_with_every_setting_in_force(tmp_path: Path) -> None:
    file = tmp_path / "responder-bot.toml"
    file.write_text(uncommented())
    core, bot = load_core(file, {}), load_bot(file, {})
    assert [engine.type for engine in core.engine] == ["process", "cortex"]
    assert list(core.responder) == ["Mailer_1_0"]
    assert [channel.alerts for channel in bot.channel] == [Route()]


def test_every_section_and_key_is_there_and_no_other() -> None:
    assert set(MODELS) == set(SECTIONS)
    found = {(section, key) for section, key, _, _ in settings()}
    assert found == {(section, key) for section, model in MODELS.items() for key in model.model_fields}
    (route,) = (value for section, key, value, _ in settings() if (section, key) == ("channel", "alerts"))
    assert set(route) == set(Route.model_fields)


def test_every_line_shows_the_default() -> None:
    wrong = [
        f"[{section}] {key} = {value!r} # {comment}"
        for section, key, value, comment in settings()
        if not shows_default(MODELS[section].model_fields[key], value, comment)
    ]
    assert wrong == []
