"""Prints as many bytes as it is told."""

import json
import sys
from pathlib import Path

job = Path(sys.argv[1])
parameters = json.loads((job / "input" / "input.json").read_text())["parameters"]
sys.stdout.write("the head\n" + "x" * parameters["bytes"] + "\n")
sys.stdout.flush()
sys.stderr.write("the tail\n")
(job / "output" / "output.json").write_text(json.dumps({"success": True, "full": {"message": "Noisy"}}))
