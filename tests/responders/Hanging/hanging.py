"""Hangs with a child, and with another in a session of its own; writes their pids to a pipe."""

import json
import os
import signal
import sys
from pathlib import Path

job = Path(sys.argv[1])
parameters = json.loads((job / "input" / "input.json").read_text())["parameters"]
pids = [os.getpid()]
for own_session in (False, True):
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        if own_session:
            os.setsid()
        os.write(write_end, b"here")
        while True:
            signal.pause()
    os.read(read_end, 4)
    pids.append(pid)
Path(parameters["ready"]).write_text(json.dumps(pids))
while True:
    signal.pause()
