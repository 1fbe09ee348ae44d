"""Says that a host was isolated, or released, for people who try approval and undo out."""

import json
import sys
from pathlib import Path

job = Path(sys.argv[1])
asked = json.loads((job / "input" / "input.json").read_text(encoding="utf-8"))
is_release = (asked.get("config") or {}).get("service") == "release"
place, tag = ("back on", "host-released") if is_release else ("off", "host-isolated")
answer = {
    "success": True,
    "full": {"message": f"The host would now be {place} the network."},
    "operations": [{"type": "AddTagToAlert", "tag": tag}],
}
(job / "output").mkdir(exist_ok=True)
(job / "output" / "output.json").write_text(json.dumps(answer), encoding="utf-8")
