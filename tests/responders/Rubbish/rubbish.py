"""Writes the text that it is told as its output file, or makes something else of that file."""

import json
import os
import sys
from pathlib import Path

job = Path(sys.argv[1])
parameters = json.loads((job / "input" / "input.json").read_text())["parameters"]
output = job / "output" / "output.json"
if "link" in parameters:
    output.symlink_to(parameters["link"])
elif parameters.get("pipe"):
    os.mkfifo(output)
else:
    output.write_text(parameters["text"].replace("BULK", parameters.get("bulk", "") * parameters.get("times", 0)))
