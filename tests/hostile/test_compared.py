"""Texts that are made to be slow to compare with `[protect]`; core does nothing else meanwhile."""

import asyncio
import time
from pathlib import Path

import pytest

from core.protection import ProtectedTargets
from core.protection.parsing import MAX_CHARS
from tests.core.running import running_core
from tests.responder_folders import write_responder

pytestmark = pytest.mark.hostile

BOUND_S = 1.0  # each takes some milliseconds, unless a search starts over at each character


@pytest.mark.parametrize(
    "text",
    [
        "\\",
        ";",
        "<",
        "[,",
        "a ",
        "[ ",
        "a[",
        "a\\ ",
        "a - ",
        "%25",
        "1.",
        "http:",
        "1.1.1.1 ",
        "é ",
        "http://a/ ",
        "a@b ",
        "ﷺ",
    ],
)
def test_a_long_text_of_one_kind_takes_no_time(text: str) -> None:
    protected = ProtectedTargets(["10.0.0.0/8", "dc01", "*.corp.example", "https://x.example/a"]).current()
    for long in ((text * MAX_CHARS)[:MAX_CHARS], (text[0] + text[-1] * MAX_CHARS)[:MAX_CHARS]):
        before = time.process_time()
        protected.entry_for(long)
        assert time.process_time() - before < BOUND_S


PROGRAM = """#!/usr/bin/env python3
import json, pathlib, sys
report = {"success": True, "full": {}, "operations": []}
(pathlib.Path(sys.argv[1]) / "output/output.json").write_text(json.dumps(report))
"""
OTHERS_BOUND_S = 0.1


def long_artifacts(count: int) -> list[dict[str, str]]:
    """Texts of 16,000 characters, each of addresses, words that may be cut, or a URL that its parser makes longer."""
    words = "".join(f"11.{n % 250}.{n // 250}.9 w{n}/x:{n}@y " for n in range(1_000))
    texts = {"other": words, "url": "https://x.example/" + "aü%/?&" * 3_000, "hostname": "a." * 8_000}
    kinds = [*texts] * count
    return [{"dataType": kind, "data": f"{texts[kind][:15_990]}{n}"} for n, kind in enumerate(kinds[:count])]


async def test_long_observables_of_a_run_delay_no_one(tmp_path: Path) -> None:
    """One with an undo, whose targets are stored, and one that is compared with `[protect]`, as many as that takes."""
    for name in ("Contain", "Release", "Read"):
        write_responder(tmp_path / "responders", name, PROGRAM, dataTypeList=["thehive:alert"])
    engine = {"name": "local", "responders": (tmp_path / "responders",)}
    own = {"Contain_1_0": {"undo": "Release_1_0", "protect": False}}
    protect = {"artifacts": ("10.0.0.0/8", "dc01", "*.corp.example", "https://x.example/b")}
    async with running_core(tmp_path, engine=(engine,), responder=own, protect=protect) as core:
        fields = {"type": "t", "source": "s", "title": "t", "description": "d"}
        worst = []
        for attempt in range(3):  # the machine may be busy
            waited, alerts = list[float](), dict[str, str]()
            for name, count in (("Contain", 40), ("Read", 16)):
                body = {**fields, "sourceRef": f"{name} {attempt}", "artifacts": long_artifacts(count)}
                alerts[name] = (await core.send("POST", "/api/alert", body)).json()["id"]

            async def others(waited: list[float], attempt: int) -> None:
                for n in range(10_000):
                    began = time.perf_counter()
                    await core.send("POST", "/api/alert", {**fields, "sourceRef": f"small {attempt} {n}"})
                    waited.append(time.perf_counter() - began)

            task = asyncio.create_task(others(waited, attempt))
            for name, alert in alerts.items():
                body = {"responderId": f"{name}_1_0", "objectType": "alert", "objectId": alert}
                answer = await core.send("POST", "/api/connector/engine/action", body)
                assert answer.status_code == 201, answer.text
            task.cancel()
            worst.append(max(waited))
        assert min(worst) < OTHERS_BOUND_S
