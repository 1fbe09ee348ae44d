"""A kernel without Landlock: the system call that makes a ruleset fails, for core and all that it starts."""

import json
import platform
import sys
from pathlib import Path

import httpx
import pytest

from core.common.errors import ResponderBotError
from core.engines import confinement
from tests.core.core_process import alert_in, core_process, run_body, setup_in

# Executes the command after it under a filter that answers landlock_create_ruleset with ENOSYS.
WITHOUT_LANDLOCK = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
code = b"".join(struct.pack("HBBI", *op) for op in (
    (0x20, 0, 0, 0),  # load the number of the system call
    (0x15, 0, 1, 444),  # landlock_create_ruleset?
    (0x06, 0, 0, 0x00050000 | 38),  # then ENOSYS
    (0x06, 0, 0, 0x7FFF0000),  # else allow
))
program = struct.pack("HxxxxxxQ", 4, ctypes.addressof(buffer := ctypes.create_string_buffer(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""
SENTENCE = "This kernel has no Landlock, so only bundled responders run, with all rights of core's account."
CLOSE = "ResponderBot_CloseAsFalsePositive_1_0"

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or bool(confinement.unavailable()),
    reason="needs Landlock to take away, on x86_64",
)


async def test_where_nothing_confines_only_bundled_responders_are_offered(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path, confinement="landlock")
    wrapper = [sys.executable, "-c", WITHOUT_LANDLOCK]
    async with core_process(setup, wrapper=wrapper) as core:
        async with httpx.AsyncClient() as http:
            health = (await http.get(f"{core.url}/health")).json()
        assert health["status"] == "degraded"
        assert {"name": "confinement", "ok": False, "message": SENTENCE} in health["parts"]
        alert_id = await alert_in(core)
        with pytest.raises(ResponderBotError, match="nothing can confine it here"):
            await core.client().run(run_body(alert_id, parameters={"steps": ["write"]}))
        run = await core.client().run(run_body(alert_id, CLOSE))
        assert (await core.ended(run.id)).status == "Success"
        logged = [json.loads(line) for line in core.log.read_text().splitlines() if line.startswith("{")]
        told = [line for line in logged if line.get("event") == "confinement_incomplete"]
        assert [(line["level"], line["reason"]) for line in told] == [("warning", SENTENCE)]


async def test_an_operator_may_decide_to_run_others_unconfined(tmp_path: Path) -> None:
    setup = await setup_in(tmp_path, confinement="none")
    async with core_process(setup, wrapper=[sys.executable, "-c", WITHOUT_LANDLOCK]) as core:
        run = await core.client().run(run_body(await alert_in(core), parameters={"steps": ["write"]}))
        assert (await core.ended(run.id)).status == "Success"
