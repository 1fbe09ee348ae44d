"""No file descriptor or thread is left."""

import asyncio
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from core.settings import EngineSection
from tests.core.core_process import ROOT, stepwise
from tests.core.running import running_core


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Leave this process so many file descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened[0] + 64, hard))
    try:
        while True:
            try:
                opened.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        for _ in range(count):
            os.close(opened.pop())
        yield
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize("left", [0, 1, 2, 3])
async def test_the_last_known_responders_stay_on_offer_without_descriptors(tmp_path: Path, left: int) -> None:
    stepwise(tmp_path / "own", "One")
    (tmp_path / "own" / "One" / "requirements.txt").write_text("# none\n")
    engine = EngineSection(name="local", responders=(tmp_path / "own",))
    async with running_core(tmp_path, engine=(engine,)) as core:
        registry = core.core.registry
        before = [responder.name for responder in registry.all()]
        assert "One_1_0" in before
        stepwise(tmp_path / "own", "Two")  # so that all is read again
        with descriptors_left(left):
            await registry.refresh()
            during = [responder.name for responder in registry.all()]
            state = next(state for state in registry.states() if state.engine.name == "local")
        assert set(before) <= set(during)
        if not left:
            assert not state.up
            assert "Too many open files" in state.message
        await registry.refresh()
        assert [responder.name for responder in registry.all()] == sorted([*before, "Two_1_0"])
        assert state.up


ALONE = ("setpriv", "--reuid=61234", "--clear-groups", "--inh-caps=+dac_override", "--ambient-caps=+dac_override")
"""Becomes an account that runs nothing else, since the limit holds each account as a whole and root not at all."""


@pytest.mark.root
@pytest.mark.parametrize("command", ["core", "init", "serve"])
async def test_without_threads_it_ends_with_a_sentence(tmp_path: Path, command: str) -> None:
    """As under `ulimit -u`."""
    (tmp_path / "settings.toml").write_text("[core]\nport = 0\ndatabase = 'core.db'\n")
    args = ["prlimit", "--nproc=1", *ALONE, sys.executable, "-m", "bot.cli", command]
    process = await asyncio.create_subprocess_exec(
        *(*args, "--config", str(tmp_path / "settings.toml")),
        cwd=ROOT,
        env={**os.environ, "SLACK_BOT_TOKEN": "xoxb-1", "SLACK_APP_TOKEN": "xapp-1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert "thread" in errors.decode() + out.decode()
    assert "Traceback" not in errors.decode()
    assert errors.decode().count("\n") == 1
    assert process.returncode == 2
