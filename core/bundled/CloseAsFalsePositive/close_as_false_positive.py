"""Close an alert as a false positive."""

import json
import sys
from pathlib import Path

job = Path(sys.argv[1])
job_input = json.loads((job / "input" / "input.json").read_text(encoding="utf-8"))
tag = (job_input.get("config") or {}).get("tag") or "false-positive"

message = f"Closed as a false positive, tagged {tag}."  # why is an input, which core keeps with the action

output = {
    "success": True,
    "full": {"message": message},
    "summary": {
        "taxonomies": [
            {"level": "safe", "namespace": "ResponderBot", "predicate": "verdict", "value": "false positive"}
        ]
    },
    "artifacts": [],
    "operations": [{"type": "AddTagToAlert", "tag": tag}, {"type": "MarkAlertAsRead"}],
}
(job / "output").mkdir(exist_ok=True)
(job / "output" / "output.json").write_text(json.dumps(output, ensure_ascii=False), encoding="utf-8")
print(message)
