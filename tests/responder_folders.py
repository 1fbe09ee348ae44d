"""Folders of responders that tests write."""

import json
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any


def write_responder(root: Path, name: str, program: str, **more: Any) -> Path:
    """Write the responder `<name>_1_0`, whose program is this; returns its folder. `more` adds to its definition."""
    folder = root / name
    folder.mkdir(parents=True)
    file = folder / ("program.sh" if program.startswith("#!/bin/sh") else "program.py")
    file.write_text(program)
    file.chmod(0o755)
    definition = {"name": name, "version": "1.0", "dataTypeList": ["thehive:alert"], "command": f"{name}/{file.name}"}
    (folder / f"{name}.json").write_text(json.dumps({**definition, **more}))
    return folder


def answering(report: Mapping[str, Any], first: str = ":") -> str:
    """A program that runs this command and then reports. A shell starts in a tenth of the time that Python takes."""
    return f'#!/bin/sh\n{first}\nprintf %s {quote(json.dumps(report))} > "$1/output/output.json"\n'
