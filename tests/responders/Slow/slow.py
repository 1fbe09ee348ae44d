"""Writes to one pipe when it runs, and ends when it reads a line from another."""

import json
import sys
from pathlib import Path

job = Path(sys.argv[1])
parameters = json.loads((job / "input" / "input.json").read_text())["parameters"]
with open(parameters["runs"], "a") as runs:
    runs.write("one run\n")
if parameters.get("early"):
    (job / "output" / "output.json").write_text(json.dumps({"success": True, "full": {"message": "Early"}}))
Path(parameters["ready"]).write_text("running")
with open(parameters["go"]) as go:
    go.readline()
(job / "output" / "output.json").write_text(json.dumps({"success": True, "full": {"message": "Slow"}}))
