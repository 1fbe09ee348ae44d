"""Ends well and leaves a child behind, which holds whatever it inherited."""

import json
import os
import signal
import sys
from pathlib import Path

job = Path(sys.argv[1])
pid = os.fork()
if pid == 0:
    while True:
        signal.pause()
answer = {"success": True, "full": {"message": "Forked", "child": pid}}
(job / "output" / "output.json").write_text(json.dumps(answer))
os._exit(0)
