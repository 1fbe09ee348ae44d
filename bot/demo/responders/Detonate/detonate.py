"""Takes 20 seconds, for people who want to see a run on its way."""

import json
import sys
import time
from pathlib import Path

job = Path(sys.argv[1])
time.sleep(20)
answer = {
    "success": True,
    "summary": {
        "taxonomies": [{"level": "suspicious", "namespace": "Demo", "predicate": "Sandbox", "value": "42/100"}]
    },
    "full": {"message": "Watched for 20 seconds: the file asks three times for a name that does not exist."},
}
(job / "output").mkdir(exist_ok=True)
(job / "output" / "output.json").write_text(json.dumps(answer), encoding="utf-8")
