"""The section that `responder-bot responders settings` prints: valid, and not configured until it is filled in."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from core.cli import main
from core.engines.base import Skipped
from core.engines.configuration import configure
from core.engines.definitions import Definition, read_definition
from core.responders.profiles import profiles
from core.responders.settings_section import settings_section
from core.settings import load
from tests.documents import ROOT
from tests.responder_folders import write_responder

ITEMS: Sequence[dict[str, Any]] = [
    {"name": "tenantId", "required": True, "defaultValue": "abcdef12-ab12", "description": "Tenant"},
    {"name": "appSecret", "required": True, "defaultValue": "ABC=", "description": 'Of the app\n"quoted" \u2028 too'},
    {"name": "oAuthUri", "required": True, "defaultValue": "https://login.microsoftonline.com", "description": "URI"},
    {"name": "groups", "multi": True, "defaultValue": ["all"], "description": ""},
    {"name": "odd name.\x07", "type": "number", "defaultValue": 3},
    {"name": "verify", "type": "boolean", "required": True, "defaultValue": True},
]


def definition(folder: Path, name: str = "MSDefender-IsolateMachine") -> Definition:
    home = write_responder(folder, name, "", configurationItems=ITEMS)
    return read_definition(home / f"{name}.json")


def test_it_is_valid_and_says_what_is_missing_until_that_is_filled_in(tmp_path: Path) -> None:
    found = definition(tmp_path / "own")
    text = settings_section(found)
    file = tmp_path / "responder-bot.toml"
    file.write_text(re.sub(r"^#(?=\S)", "", text, flags=re.M))  # also with all that is suggested
    file.chmod(0o600)
    section = load(file, {}).responder[found.name]
    assert (section.approval, section.undo, section.undo_after_minutes) == (1, "MSDefender-UnisolateMachine_1_0", 60)
    assert section.config["groups"] == ["all"]
    config = tomllib.loads(text)["responder"][found.name]["config"]
    assert config == {"tenantId": "", "appSecret": "", "oAuthUri": "https://login.microsoftonline.com", "verify": True}
    given: Mapping[str, Any]
    for given in (config, {}):
        skipped = configure(found, given)
        assert isinstance(skipped, Skipped)
        assert skipped.public_reason.startswith("not configured: tenantId, appSecret missing")
    assert not isinstance(configure(found, {**config, "tenantId": "t", "appSecret": "s"}), Skipped)
    lines = dict(line.split(" = ", 1) for line in text.splitlines() if " = " in line)
    assert "required; abcdef12-ab12 is a placeholder; Tenant" in lines["tenantId"]
    assert '"quoted" too; a secret: { file = "..." } and { command = [...] } work too' in lines["appSecret"]
    assert "# It reads the case.\n" in text


def test_what_only_the_code_requires_is_marked(tmp_path: Path) -> None:
    items = [{"name": "zia_client_id", "description": "Id"}]
    home = write_responder(tmp_path, "ZscalerZIA_AddToATPDenylist", "", configurationItems=items)
    text = settings_section(read_definition(home / "ZscalerZIA_AddToATPDenylist.json"))
    assert re.search(r"^#zia_client_id = \"\" +# required: zia_client_id or zia_password; Id$", text, re.M)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["settings", "Own_1_0"], ""),
        (["settings", "Own_2_0"], "responder Own_2_0; did you mean Own_1_0?\n"),
        (["install", "gone"], "gone is not a folder; name the one that contains the responders' folders.\n"),
        (["install", "empty"], "no folder in it has a usable definition (*.json).\n"),
        (
            ["install"],
            "gone is not a folder; name the one that contains the responders' folders in [[engine]] responders.\n",
        ),
    ],
)
def test_a_responder_or_a_folder_that_is_not_there_is_an_error(
    tmp_path: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty" / "Nothing").mkdir(parents=True)
    write_responder(tmp_path / "own", "Own", "", configurationItems=ITEMS)
    file = tmp_path / "responder-bot.toml"
    file.write_text('[[engine]]\nname = "local"\nresponders = ["own", "gone"]\n')
    file.chmod(0o600)
    arguments = [str(tmp_path / word) if word in ("gone", "empty") else word for word in arguments]
    code = main(["responders", *arguments, "--config", str(file)])
    out, error = capsys.readouterr()
    assert (code, error.endswith(said), '[responder."Own_1_0"]' in out) == (2 if said else 0, True, not said)


@pytest.mark.parametrize(
    "page", sorted((ROOT / "core" / "docs" / "vendors").iterdir()), ids=lambda page: str(page.stem)
)
def test_the_pages_of_vendors_show_settings_that_are_valid(tmp_path: Path, page: Path) -> None:
    (shown,) = re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.M | re.S)
    file = tmp_path / "responder-bot.toml"
    file.write_text(shown)
    file.chmod(0o600)
    sections = load(file, {}).responder
    assert sections.keys() <= profiles().keys()
    for name, section in sections.items():
        assert section.undo in ("", profiles()[name].undo)
        assert section.config
