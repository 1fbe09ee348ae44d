"""A responder for every kind of object, which says that it was here."""

import json
import sys
from pathlib import Path

from core.models import KINDS
from core.settings import EngineSection

NAME = "Here_1_0"
_PROGRAM = f"""#!{sys.executable}
import json
print(json.dumps({{"success": True, "full": {{"message": "here"}}, "operations": []}}))
"""


def engine_for_every_kind(folder: Path) -> EngineSection:
    """An engine `local` with that responder, whose files are made below `folder`."""
    home = folder / "responders" / "Here"
    home.mkdir(parents=True)
    program = home / "here.py"
    program.write_text(_PROGRAM, encoding="utf-8")
    program.chmod(0o755)
    definition = {
        "name": "Here",
        "version": "1.0",
        "author": "tests",
        "url": "https://responder.example",
        "license": "Apache-2.0",
        "description": "Says that it was here",
        "dataTypeList": [f"thehive:{kind}" for kind in KINDS],
        "baseConfig": "Here",
        "command": "Here/here.py",
    }
    (home / "Here.json").write_text(json.dumps(definition), encoding="utf-8")
    return EngineSection(name="local", responders=(folder / "responders",))
