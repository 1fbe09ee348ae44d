"""Takes more than it may: of memory, processor time, disk, open files or processes."""

import json
import os
import signal
import sys
from pathlib import Path

job = Path(sys.argv[1])
wanted = json.loads((job / "input" / "input.json").read_text())["parameters"]["wants"]
if wanted == "memory":
    held = bytearray(10**10)
elif wanted == "cpu":
    while True:
        pass
elif wanted == "output":
    (job / "output" / "output.json").write_text("x" * 10**7)
elif wanted == "files":
    files = [open(os.devnull) for _ in range(10**5)]  # noqa: SIM115 - to hold them is the point
elif wanted == "processes":
    while True:
        if os.fork() == 0:
            signal.pause()
