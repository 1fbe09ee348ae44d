"""The JSON Schema of the settings accepts what the loader does."""

import json
import tomllib
from pathlib import Path

import jsonschema_rs
import pytest

from tests import programs
from tests.documents import ROOT, blocks
from tests.test_settings_example import uncommented

pytestmark = pytest.mark.fuzz


def test_the_schema_accepts_the_examples_and_no_mistake(tmp_path: Path) -> None:
    printed = programs.run("bot.cli", "check", "--schema", cwd=tmp_path, env={"PATH": "/usr/bin:/bin"}).stdout
    schema = jsonschema_rs.validator_for(json.loads(printed))
    examples = [block for page in ("README.md", "core/docs/responders.md") for block in blocks(ROOT / page, "toml")]
    for example in [*examples, uncommented()]:
        schema.validate(tomllib.loads(example))
    schema.validate({"channel": [{"id": "C1", "clearance": "red", "group": False}], "protect": {"artifacts": "a, b"}})
    for mistake in ("core.prot = 1", "core.port = 'x'", "channel = [{ id = 'C1', clearance = 'puce' }]", "cor = {}"):
        assert not schema.is_valid(tomllib.loads(mistake))
