"""A responder that imports requests, sleeps for as long as the alert's title says, and reports from when to when.

The sleep stands for its own work, such as a call to a firewall.
"""

import json
import sys
import time
from pathlib import Path

import requests

began = time.time()
job = Path(sys.argv[1])
job_input = json.loads((job / "input" / "input.json").read_text(encoding="utf-8"))
time.sleep(float(job_input["data"]["title"].split()[0]))
full = {"with": requests.codes.ok, "began": began, "ended": time.time()}
answer = {"success": True, "full": full, "operations": []}
(job / "output").mkdir(exist_ok=True)
(job / "output" / "output.json").write_text(json.dumps(answer), encoding="utf-8")
