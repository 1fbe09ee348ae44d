"""Says that a host was isolated, for people who try approval out."""

import json
import sys
from pathlib import Path

job = Path(sys.argv[1])
asked = json.loads((job / "input" / "input.json").read_text(encoding="utf-8"))
title = (asked.get("data") or {}).get("title", "")
answer = {
    "success": True,
    "full": {"message": f"The host of {title!r} would now be off the network."},
    "operations": [{"type": "AddTagToAlert", "tag": "host-isolated"}],
}
(job / "output").mkdir(exist_ok=True)
(job / "output" / "output.json").write_text(json.dumps(answer), encoding="utf-8")
