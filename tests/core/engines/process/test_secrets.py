"""Reports show neither secrets of the configuration nor paths of this machine."""

import json
from pathlib import Path
from typing import Any

from core.engines.base import Report
from tests.core.engines.process.conftest import MakeEngine, ProgressLog, job_for

LEAKY = """
import base64, json, sys, urllib.parse
from pathlib import Path

job = Path(sys.argv[1])
asked = json.loads((job / "input" / "input.json").read_text())
config = asked["config"]
key, url, pin = config["api_key"], config["url"], config["pin_token"]
login = base64.b64encode(b"bo:" + key.encode()).decode()
said = [key, url, f"Basic {login}", urllib.parse.quote(key, safe=""), json.dumps({"k": key}), {key: 1}, pin, str(pin)]
print(*said, sep="\\n")
if asked["parameters"].get("raises"):
    raise RuntimeError(f"no answer from {url} in {job}")
(job / "output" / "output.json").write_text(json.dumps({
    "success": asked["parameters"]["success"],
    "full": {"message": f"Used {key}", "said": said},
    "summary": {"taxonomies": [{"namespace": "n", "predicate": "p", "value": key}]},
    "artifacts": [{"data": url}],
    "operations": [{"type": "AddTagToAlert", "tag": key}, *said],
    "errorMessage": said,
    "input": asked,
}))
"""
KEY = 'open "sesame" & close/it+'
SECRETS = (KEY, "hunter22", "k-77-88", "sesame", "123456")


async def leaked(make_engine: MakeEngine, tmp_path: Path, **parameters: Any) -> Report:
    folder = tmp_path / "own" / "Leaky"
    folder.mkdir(parents=True)
    (folder / "leaky.py").write_text(LEAKY)
    items = [
        {"name": name, "type": kind}
        for name, kind in (("api_key", "string"), ("url", "string"), ("pin_token", "number"))
    ]
    definition = {"name": "Leaky", "version": "1", "dataTypeList": ["thehive:alert"], "command": "Leaky/leaky.py"}
    (folder / "Leaky.json").write_text(json.dumps({**definition, "configurationItems": items}))
    config = {
        "api_key": KEY,
        "url": "https://ann:hunter22@siem.example/x?q=1&api_key=k-77-88",
        "pin_token": 123456,
        "proxy_http": "bo:hunter22@proxy.example:3128",
    }
    engine = make_engine(folders=(folder.parent,), config={"Leaky_1": config})
    return await engine.run(await job_for(engine, "Leaky_1", **parameters), ProgressLog())


def all_of(report: Report) -> str:
    return json.dumps([report.__dict__], ensure_ascii=False)


async def test_no_secret_of_the_configuration_is_in_a_report(make_engine: MakeEngine, tmp_path: Path) -> None:
    report = await leaked(make_engine, tmp_path, success=True)
    assert report.success
    assert [secret for secret in SECRETS if secret in all_of(report)] == []
    assert report.operations[0] == {"type": "AddTagToAlert", "tag": "REMOVED"}
    assert report.message == "Used REMOVED"
    assert report.full["said"][:4] == [
        "REMOVED",
        "https://REMOVED@siem.example/x?q=1&api_key=REMOVED",
        report.full["said"][2],
        "REMOVED",
    ]
    assert report.config["url"] == "https://REMOVED@siem.example/x?q=1&api_key=REMOVED"
    assert report.config["proxy"] == {"http": "REMOVED@proxy.example:3128", "https": None}


async def test_no_secret_is_in_the_report_of_a_failure(make_engine: MakeEngine, tmp_path: Path) -> None:
    report = await leaked(make_engine, tmp_path, success=False)
    assert not report.success
    assert [secret for secret in SECRETS if secret in all_of(report)] == []
    assert report.input is not None
    assert report.input["config"]["proxy"]["http"] == "REMOVED@proxy.example:3128"


async def test_a_traceback_shows_neither_login_nor_paths_of_this_machine(
    make_engine: MakeEngine, tmp_path: Path
) -> None:
    report = await leaked(make_engine, tmp_path, raises=True)
    assert (
        "RuntimeError: no answer from https://REMOVED@siem.example/x?q=1&api_key=REMOVED in local-8257"
        in report.message
    )
    assert 'File "own/Leaky/leaky.py"' in report.printed
    assert [text for text in (*SECRETS, str(tmp_path / "jobs"), str(tmp_path / "own")) if text in all_of(report)] == []
