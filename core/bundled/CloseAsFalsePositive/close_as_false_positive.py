"""Close an alert as a false positive."""

import json
import sys
from pathlib import Path

job = Path(sys.argv[1])
job_input = json.loads((job / "input" / "input.json").read_text(encoding="utf-8"))
alert = job_input.get("data") or {}
parameters = job_input.get("parameters") or {}
tag = (job_input.get("config") or {}).get("tag") or "false-positive"

reason = str(parameters.get("reason") or job_input.get("message") or "").strip()
title = str(alert.get("title") or "without a title")
user = str(parameters.get("user") or "")
who = f" by {user}" if user else ""
because = f" Reason: {reason}" if reason else " No reason was given."
message = f"Alert “{title}” was closed as a false positive{who}: tagged {tag}, marked as read.{because}"

output = {
    "success": True,
    "full": {"message": message, "reason": reason, "tag": tag, "alert": alert.get("_id") or alert.get("id")},
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
