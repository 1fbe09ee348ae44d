"""Fails with the errorMessage that it is told, and gives its input back."""

import json
import sys
from pathlib import Path

job = Path(sys.argv[1])
job_input = json.loads((job / "input" / "input.json").read_text())
answer = {"success": False, "errorMessage": job_input["parameters"]["error"], "input": job_input, "operations": None}
(job / "output" / "output.json").write_text(json.dumps(answer))
sys.exit(1)
