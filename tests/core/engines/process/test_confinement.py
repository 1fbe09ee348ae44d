"""What a responder's program can't reach, however it was started, and whoever runs core."""

import ctypes
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import venv
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.engines.confinement import unavailable
from core.engines.run_report import CONFINED
from core.settings import ResponderSection
from tests.core.engines.process.conftest import PREAMBLE, MakeEngine, job_for, responder

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable() or "confined here")

PROGRAM = '''
"""Tries what it is told, and reports what came of each attempt."""
import ctypes, json, os, signal, socket, subprocess, sys

job = sys.argv[1]
known = json.load(open(f"{job}/input/input.json"))["parameters"]
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_ssize_t


def called(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def write(path, how="w"):
    with open(path, how) as file:
        file.write("planted")


def connect_local(path):
    with socket.socket(socket.AF_UNIX) as local:
        local.connect(path)


def connect(address):
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=5):
        pass


ATTEMPTS = {
    "read": lambda path: open(path).read(),
    "write": write,
    "append": lambda path: write(path, "a"),
    "list": os.listdir,
    "remove": os.unlink,
    "link": lambda path: os.link(path, f"{job}/output/linked"),
    "follow": lambda path: (os.symlink(path, f"{job}/output/followed"), open(f"{job}/output/followed").read()),
    "rename": lambda path: os.rename(f"{job}/output/mine", path),
    "mode": lambda path: os.chmod(path, 0o777),
    "environment": lambda pid: open(f"/proc/{pid}/environ").read(),
    "memory": lambda pid: open(f"/proc/{pid}/mem", "rb"),
    "descriptors": lambda pid: os.listdir(f"/proc/{pid}/fd"),
    "root": lambda pid: open(f"/proc/{pid}/root/etc/hostname").read(),
    "signal": lambda pid: os.kill(int(pid), 0),
    "trace": lambda pid: called(libc.ptrace(16, int(pid), 0, 0)),
    "read memory": lambda pid: called(libc.process_vm_readv(int(pid), 0, 0, 0, 0, 0)),
    "namespace": lambda flags: called(libc.unshare(int(flags))),
    "mount": lambda path: called(libc.mount(b"none", path.encode(), b"tmpfs", 0, None)),
    "become": lambda uid: os.setuid(int(uid)),
    "own": lambda path: os.chown(path, 1, 1),
    "device": lambda path: os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3)),
    "local socket": connect_local,
    "connect": connect,
    "run": lambda path: subprocess.run([path], check=True),
    "raw socket": lambda kind: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, int(kind)),
    "job": lambda name: open(f"{os.path.dirname(job)}/{name}").read(),
    "plant": lambda name: write(f"{os.path.dirname(job)}/{name}"),
    "input": lambda _: write(f"{job}/input/input.json"),
    "own program": lambda _: write(__file__),
    "site": lambda _: write(os.path.join(os.path.dirname(os.__file__), "planted.pth")),
    "mine": lambda _: write(f"{job}/output/mine"),
    "temporary": lambda _: __import__("tempfile").NamedTemporaryFile().write(b"x"),
    "home": lambda _: write(os.path.expanduser("~/.cache")),
    "child": lambda _: subprocess.run([sys.executable, "-c", "pass"], check=True),
    "stop child": lambda _: subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]).kill(),
    "resolve": lambda name: socket.getaddrinfo(name, 80),
    "certificates": lambda _: __import__("ssl").create_default_context(),
    "zone": lambda name: __import__("zoneinfo").ZoneInfo(name),
    "shared memory": lambda size: called(libc.shmget(0, int(size), 0o1600)),
    "attach memory": lambda number: called(libc.shmat(int(number), None, 0)),
    "messages": lambda _: called(libc.msgget(0, 0o1600)),
    "semaphores": lambda count: called(libc.semget(0, int(count), 0o1600)),
    "named messages": lambda name: called(libc.mq_open(name.encode(), os.O_CREAT | os.O_RDWR, 0o600, None)),
    "thread": lambda _: __import__("threading").Thread(target=int).start(),
    "pipe": lambda _: os.mkfifo(f"{job}/output/pipe"),
}

found = {}
for what, value in known["attempts"]:
    try:
        ATTEMPTS[what](value)
    except OSError as error:
        found[f"{what} {value}"] = f"{type(error).__name__}: {error.strerror}"
    except Exception as error:
        found[f"{what} {value}"] = f"{type(error).__name__}: {error}"
    else:
        found[f"{what} {value}"] = "done"
with open(f"{job}/output/output.json", "w") as file:
    json.dump({"success": True, "full": {"found": found}}, file)
'''


@pytest.fixture
def trying(tmp_path: Path) -> Path:
    """A folder with the responder `Trying_1_0`, and one with another's."""
    return responders_in(tmp_path / "responders")


def responders_in(root: Path) -> Path:
    for name in ("Trying", "Another"):
        (root / name).mkdir(parents=True)
        (root / name / "trying.py").write_text(PROGRAM)
        definition = {
            "name": name, "version": "1.0", "author": "tests", "url": "", "license": "Apache-2.0",
            "description": "Tries what it should not", "dataTypeList": ["thehive:alert"],
            "command": f"{name}/trying.py", "baseConfig": name, "configurationItems": [],
        }  # fmt: skip
        (root / name / f"{name}.json").write_text(json.dumps(definition))
    return root


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    secret = tmp_path / "responder-bot.toml"
    secret.write_text('[slack]\nbot_token = "xoxb-secret"\n')
    return secret


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same account with a secret in its environment."""
    process = subprocess.Popen(["sleep", "600"], env={"TOKEN": "xoxb-secret", "PATH": os.environ["PATH"]})
    yield process
    process.kill()
    process.wait()


async def tried(
    make_engine: MakeEngine, responders: Path, *attempts: tuple[str, Any], section: ResponderSection | None = None
) -> dict[str, str]:
    """What came of each attempt, as a confined program."""
    engine = make_engine(
        folders=(responders,), confinement="landlock", sections={"Trying_1_0": section or ResponderSection()}
    )
    attempted = [(what, value if isinstance(value, int) else str(value)) for what, value in attempts]
    job = await job_for(engine, "Trying_1_0", action_id=f"~{next(_numbers)}", attempts=attempted)
    report = await engine.run(job, _ignore)
    assert report.success, report.message
    found: dict[str, str] = report.full["found"]
    return found


_numbers = itertools.count(1)


async def _ignore(_progress: object) -> None:
    return None


def not_refused(found: dict[str, str]) -> dict[str, str]:
    """What was not refused; nothing should be left. Landlock refuses a link or a move to elsewhere with EXDEV."""
    refusals = ("PermissionError", "OSError: Invalid cross-device link")
    return {what: outcome for what, outcome in found.items() if not outcome.startswith(refusals)}


async def test_files_of_core_and_of_others_can_not_be_reached(
    make_engine: MakeEngine, trying: Path, secret: Path
) -> None:
    other = trying / "Another" / "trying.py"
    database = secret.parent / "core.db"
    database.write_text("a database")
    found = await tried(
        make_engine,
        trying,
        *(("read", secret), ("write", secret), ("append", secret), ("link", secret), ("follow", secret)),
        *(("read", database), ("append", database), ("remove", database)),
        *(("mine", ""), ("rename", secret), ("list", secret.parent), ("list", "/root"), ("list", "/home")),
        *(("read", "/etc/shadow"), ("read", other), ("write", other), ("own program", ""), ("site", ""), ("input", "")),
        *(("job", "facts.json"), ("job", "started"), ("plant", "stop"), ("plant", "started")),
        *(
            ("run", "/proc/1/exe"),
            ("write", secret.with_name("planted")),
            ("list", Path("/dev", "shm")),
            ("list", "/proc"),
        ),
    )
    found.pop("mine ")
    assert not_refused(found) == {}
    assert secret.read_text().startswith("[slack]")
    assert database.read_text() == "a database"
    assert other.read_text() == PROGRAM


async def test_other_processes_can_not_be_reached(
    make_engine: MakeEngine, trying: Path, bystander: subprocess.Popen[bytes]
) -> None:
    attempts = [
        (what, pid)
        for pid in (bystander.pid, os.getpid(), 1)
        for what in ("environment", "memory", "descriptors", "root", "signal", "trace", "read memory")
    ]
    found = await tried(make_engine, trying, *attempts)
    assert not_refused(found) == {}
    assert bystander.poll() is None


async def test_no_rights_can_be_gained(make_engine: MakeEngine, trying: Path, tmp_path: Path) -> None:
    clone_newuser, clone_newns = 0x10000000, 0x00020000
    found = await tried(
        make_engine,
        trying,
        *(("namespace", clone_newuser), ("namespace", clone_newns), ("mount", tmp_path), ("raw socket", 3)),
        *(("device", tmp_path / "null"), ("own", trying)),
        *([("become", 65534)] if os.getuid() == 0 else [("become", 0)]),
    )
    assert not_refused(found) == {}


@pytest.fixture
def shared_memory() -> Iterator[int]:
    """The id of shared memory of another program of the account."""
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.shmget(0, 4096, 0o1600)
    assert number >= 0
    yield number
    libc.shmctl(number, 0, None)


LASTING = (("shared memory", 4096), ("messages", ""), ("semaphores", 1), ("named messages", "/responder-bot-test"))
"""What outlives the program that makes it, and is bounded by none of its limits."""


async def test_nothing_is_left_in_memory_and_that_of_others_is_closed(
    make_engine: MakeEngine, trying: Path, shared_memory: int
) -> None:
    found = await tried(make_engine, trying, *LASTING, ("attach memory", shared_memory))
    assert not_refused(found) == {}


@pytest.fixture
async def listening(tmp_path: Path) -> AsyncIterator[tuple[str, str]]:
    """A TCP address and a local socket on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as local:
        local.bind(str(tmp_path / "socket"))
        local.listen()
        yield f"127.0.0.1:{tcp.getsockname()[1]}", str(tmp_path / "socket")


async def test_the_network_is_as_the_settings_say_and_local_sockets_are_closed(
    make_engine: MakeEngine, trying: Path, listening: tuple[str, str]
) -> None:
    tcp, local = listening
    found = await tried(make_engine, trying, ("connect", tcp), ("local socket", local))
    assert found[f"connect {tcp}"] == "done"
    assert found[f"local socket {local}"].startswith("PermissionError")
    without = await tried(make_engine, trying, ("connect", tcp), section=ResponderSection(network="none"))
    assert not_refused(without) == {}


async def test_what_a_responder_needs_is_there(make_engine: MakeEngine, trying: Path) -> None:
    found = await tried(
        make_engine,
        trying,
        *(
            ("mine", ""),
            ("temporary", ""),
            ("home", ""),
            ("child", ""),
            ("stop child", ""),
            ("thread", ""),
            ("pipe", ""),
        ),
        *(("resolve", "localhost"), ("certificates", ""), ("zone", "Europe/Berlin"), ("read", "/proc/self/status")),
    )
    assert {what: outcome for what, outcome in found.items() if outcome != "done"} == {}


async def test_the_settings_grant_more_to_one_responder(make_engine: MakeEngine, trying: Path, tmp_path: Path) -> None:
    readable, writable = tmp_path / "list.csv", tmp_path / "state"
    readable.write_text("known")
    writable.mkdir()
    section = ResponderSection(readable=(readable,), writable=(writable,))
    found = await tried(
        make_engine, trying, ("read", readable), ("write", readable), ("write", writable / "mine"), section=section
    )
    assert (found[f"read {readable}"], found[f"write {writable / 'mine'}"]) == ("done", "done")
    assert found[f"write {readable}"].startswith("PermissionError")


async def test_a_responder_may_be_left_unconfined_by_name(make_engine: MakeEngine, trying: Path, secret: Path) -> None:
    found = await tried(make_engine, trying, ("read", secret), section=ResponderSection(confinement="none"))
    assert found[f"read {secret}"] == "done"


async def test_the_report_of_a_refused_responder_says_what_to_grant(
    make_engine: MakeEngine, trying: Path, secret: Path
) -> None:
    (trying / "Trying" / "trying.py").write_text(f"open({str(secret)!r}).read()\n")
    engine = make_engine(folders=(trying,), confinement="landlock", sections={})
    report = await engine.run(await job_for(engine, "Trying_1_0"), _ignore)
    assert not report.success
    assert f"PermissionError: [Errno 13] Permission denied: '{secret}'" in report.message
    assert report.message.endswith(CONFINED)


async def test_packages_of_the_environment_are_confined_too(
    make_engine: MakeEngine, tmp_path: Path, secret: Path
) -> None:
    """They are foreign code as well: a `requirements.txt` can name any package."""
    environment = tmp_path / "environment"
    venv.EnvBuilder(symlinks=True, with_pip=False).create(environment)
    (site,) = environment.glob("lib/python*/site-packages")
    stealing = f"try:\n    found = open({str(secret)!r}).read()\nexcept OSError as error:\n    found = error.strerror\n"
    for name in ("requests", "customizing"):
        (site / f"{name}.py").write_text(stealing)
    (site / "customizing.pth").write_text("import customizing\n")  # so the interpreter imports it as it starts
    program = f"{PREAMBLE}\n    import requests, sys\n    say(found=[requests.found, sys.modules['customizing'].found])"
    responder(tmp_path / "own", "Importing", program)
    engine = make_engine(folders=(tmp_path / "own",), confinement="landlock", python=environment / "bin" / "python")
    report = await engine.run(await job_for(engine, "Importing_1_0"), _ignore)
    assert report.full["found"] == ["Permission denied"] * 2


async def test_no_two_runs_share_a_memory_layout_or_a_seed(make_engine: MakeEngine, tmp_path: Path) -> None:
    program = f"""{PREAMBLE}
    import random, ssl, uuid, tempfile
    libc = next(line.split("-")[0] for line in open("/proc/self/maps") if "libc" in line)
    say(libc=libc, object=id(object()), hash=hash("x"), random=random.random(), ssl=ssl.RAND_bytes(8).hex(),
        uuid=str(uuid.uuid4()), temporary=tempfile.mktemp())
    """
    responder(tmp_path / "own", "Dice", program)
    engine = make_engine(folders=(tmp_path / "own",), confinement="landlock")
    reports = [await engine.run(await job_for(engine, "Dice_1_0", action_id=f"~{n}"), _ignore) for n in range(3)]
    for name, value in reports[0].full.items():
        assert [report.full[name] for report in reports].count(value) == 1, name


ORDINARY = """
import asyncio, json, os, sys
from pathlib import Path
from tests.core.engines.process.engines import engine_in
from tests.core.engines.process.conftest import job_for
from core.settings import ResponderSection

async def main(place, responders, attempts):
    async def ignore(_): pass
    engine = engine_in(Path(place), folders=(Path(responders),), confinement="landlock", python=Path(sys.argv[4]))
    report = await engine.run(await job_for(engine, "Trying_1_0", attempts=json.loads(attempts)), ignore)
    await engine.close()
    print(json.dumps(report.full["found"] if report.success else report.message))

asyncio.run(main(*sys.argv[1:4]))
"""


ROOT = Path(__file__).parents[4]
SYSTEM_PYTHON = Path("/usr/bin/python3")
NOBODY = 65534


def as_nobody(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the system's Python as an ordinary user, with this project and what it needs."""
    site = next(part for part in sys.path if part.endswith("site-packages"))
    return subprocess.run(
        [SYSTEM_PYTHON, *map(str, arguments)],
        cwd=ROOT,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        env={"PATH": os.defpath, "PYTHONPATH": f"{ROOT}:{site}", "HOME": "/"},
    )


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that an ordinary user can reach; pytest's own is closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # noqa: S103 - that is the point
        yield Path(folder)


@pytest.mark.root
def test_an_ordinary_user_s_responders_are_confined_as_root_s_are(scratch: Path) -> None:
    if as_nobody("-c", "import core.engines.process.engine, tests.core.engines.process.conftest").returncode:
        pytest.skip("an ordinary user can't import this project here")
    responders, secret, state = responders_in(scratch / "responders"), scratch / "responder-bot.toml", scratch / "state"
    secret.write_text("token")
    state.mkdir()
    for path in scratch.rglob("*"):
        os.chown(path, NOBODY, NOBODY)
    victim = subprocess.Popen(["sleep", "600"], user=NOBODY, group=NOBODY)
    attempts = [
        *(("read", str(secret)), ("append", str(secret)), ("own program", ""), ("input", "")),
        *(("job", "facts.json"), ("plant", "stop")),
        *((what, victim.pid) for what in ("environment", "memory", "signal", "trace", "read memory")),
    ]
    try:
        ran = as_nobody("-c", ORDINARY, state, responders, json.dumps(attempts), SYSTEM_PYTHON)
        assert ran.returncode == 0, ran.stderr
        assert not_refused(json.loads(ran.stdout.splitlines()[-1])) == {}
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()
