"""Says what it was given."""

import json
import os
import sys
from pathlib import Path

job = Path(sys.argv[1])
job_input = json.loads((job / "input" / "input.json").read_text())
(job / "output" / "output.json").write_text(
    json.dumps(
        {
            "success": True,
            "full": {
                "message": "Echo",
                "input": job_input,
                "keys": list(job_input),
                "environment": dict(os.environ),
                "argv": sys.argv,
                "folder": os.getcwd(),
                "path": sys.path,
                "standard_input": sys.stdin.read(),
                "session": os.getsid(0) == os.getpid(),
                "open": sorted(str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.exists()),
            },
            "operations": None,
        }
    )
)
sys.stdout.write(f"the key is {job_input['config']['api_key']}\n")
