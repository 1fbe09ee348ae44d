"""Folders of responders that tests write."""

import json
from pathlib import Path
from typing import Any


def write_responder(root: Path, name: str, program: str, **more: Any) -> Path:
    """Write the responder `<name>_1_0`, whose program is this; returns its folder. `more` adds to its definition."""
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "program.py").write_text(program)
    definition = {"name": name, "version": "1.0", "dataTypeList": ["thehive:alert"], "command": f"{name}/program.py"}
    (folder / f"{name}.json").write_text(json.dumps({**definition, **more}))
    return folder
