"""A responder that imports requests, as most public ones do, and reports success."""

import json
import sys
from pathlib import Path

import requests

job = Path(sys.argv[1])
job_input = json.loads((job / "input" / "input.json").read_text(encoding="utf-8"))
answer = {"success": True, "full": {"with": requests.codes.ok, "of": job_input["data"]["_id"]}, "operations": []}
(job / "output").mkdir(exist_ok=True)
(job / "output" / "output.json").write_text(json.dumps(answer), encoding="utf-8")
