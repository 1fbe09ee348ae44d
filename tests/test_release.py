"""The scripts of a release: what it publishes can be verified, and the audit says what it found, or that it didn't."""

import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.documents import ROOT
from tests.test_wheel import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CHANGELOG = ".github/CHANGELOG.md"
DEVELOPED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
VERSION = DEVELOPED.removesuffix(".dev0")
ADVISORY = {"id": "GHSA-test", "summary": "It leaks.", "modified": "2026-01-01T00:00:00Z"}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """What git has, in a repository of its own with a tag and a section in the changelog."""
    if not (ROOT / ".git").exists():
        pytest.skip("this is a copy without a repository")
    folder = tmp_path / "repository"
    for name in run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").split("\0"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    for name in ("pyproject.toml", "uv.lock"):
        text = (folder / name).read_text()
        (folder / name).write_text(text.replace(f'version = "{DEVELOPED}"', f'version = "{VERSION}"'))
    (folder / CHANGELOG).write_text(f"## [{VERSION}] - 2026-12-01\n")
    git(folder, "init")
    commit(folder)
    git(folder, "tag", f"v{VERSION}")
    return folder


def git(folder: Path, *arguments: str) -> None:
    run("git", "-c", "user.name=t", "-c", "user.email=t@example.org", *arguments, cwd=folder)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "All of it")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key")
    return tmp_path / "key"


def refused(repository: Path, *arguments: Path) -> str:
    ended = subprocess.run([".ci/release", *arguments], cwd=repository, capture_output=True, text=True)
    assert ended.returncode == 1
    return ended.stderr.strip()


def test_what_a_release_publishes_is_signed_and_complete(repository: Path, key: Path) -> None:
    run(".ci/release", key, cwd=repository)
    folder = repository / "dist" / VERSION
    names = {
        f"responder_bot-{VERSION}-py3-none-any.whl",
        f"responder_bot-{VERSION}.tar.gz",
        f"responder-bot-{VERSION}.cdx.json",
        "AUDIT",
    }
    assert {file.name for file in folder.glob("[!.]*")} == {*names, "SHA256SUMS", "SHA256SUMS.sig"}
    assert run("sha256sum", "--check", "SHA256SUMS", cwd=folder).count(": OK\n") == len(names)
    signers = repository.parent / "allowed_signers"
    signers.write_text(f"release {key.with_suffix('.pub').read_text()}")
    verify: list[str | Path] = [
        "ssh-keygen",
        "-Y",
        "verify",
        "-n",
        "file",
        "-f",
        signers,
        "-I",
        "release",
        "-s",
        "SHA256SUMS.sig",
    ]
    sums = (folder / "SHA256SUMS").read_bytes()
    assert not subprocess.run(verify, cwd=folder, input=sums, capture_output=True).returncode
    assert subprocess.run(verify, cwd=folder, input=sums + b"\n", capture_output=True).returncode
    assert (folder / "AUDIT").read_text().startswith(("ok    ", "SKIP  not audited"))
    bill = json.loads((folder / f"responder-bot-{VERSION}.cdx.json").read_text())
    components = {component["name"] for component in bill["components"]}
    assert bill["bomFormat"] == "CycloneDX"
    assert {"aiohttp", "psycopg-binary", "starlette"} <= components
    assert components.isdisjoint({"pytest", "mypy"})
    assert refused(repository, key) == f"There is a dist/{VERSION}; remove it first."


def test_only_a_commit_that_is_tagged_and_told_in_the_changelog_is_released(repository: Path, key: Path) -> None:
    assert "can't be read" in refused(repository, key.with_name("no-key"))
    (repository / "new").touch()
    assert refused(repository, key) == "Something is not committed; a release is made of what git has."
    commit(repository)
    assert refused(repository, key) == f"This commit has no tag v{VERSION}; set it first."
    (repository / CHANGELOG).write_text("## [Unreleased]\n")
    commit(repository)
    git(repository, "tag", "--force", f"v{VERSION}")
    assert refused(repository, key) == f"The changelog has no section [{VERSION}]; write it first."


@pytest.fixture
def database() -> Iterator[tuple[str, dict[str, Any]]]:
    """A stand-in for the advisory database: its address, and by package what it knows."""
    known: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = [known.get(query["package"]["name"]) for query in asked["queries"]]
            self._answer({"results": [{"vulns": [item]} if item else {} for item in found]})

        def do_GET(self) -> None:
            affected = [{"package": {"name": name, "ecosystem": "PyPI"}} for name in known]
            self._answer({**ADVISORY, "affected": affected})

        def _answer(self, body: Any) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/", known
    server.shutdown()
    thread.join()
    server.server_close()


def audited(*arguments: str) -> tuple[int, str]:
    ended = subprocess.run([ROOT / ".ci" / "audit", *arguments], capture_output=True, text=True)
    return ended.returncode, ended.stdout


def test_the_audit_tells_nothing_known_from_not_asked(database: tuple[str, dict[str, Any]]) -> None:
    url, known = database
    code, said = audited("--service-url", url)
    assert (code, said.startswith("ok    no advisory is known")) == (0, True), said
    known["aiohttp"] = ADVISORY
    code, said = audited("--service-url", url)
    assert (code, said.startswith("FAIL  "), "GHSA-test" in said, "aiohttp" in said) == (1, True, True, True), said
    code, said = audited("--service-url", "http://127.0.0.1:9/")
    assert (code, said.startswith("SKIP  not audited")) == (75, True), said
