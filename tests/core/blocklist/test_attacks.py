"""What readers ask for that is no plain read, and a restore while they read (core/docs/blocklist.md)."""

import asyncio
import itertools
import socket
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from core.store import blocklist as stored
from tests import stores
from tests.core.blocklist.harness import BLOCK, block, fill, listed
from tests.core.core_process import CoreProcess, core_process, setup_in
from tests.core.running import running_core
from tests.core.test_cli import Ended, run
from tests.ports import free_port

LONG = [f"https://evil.example/{number}{'x' * 1_500}" for number in range(10_000)]


@pytest.mark.parametrize(
    "entries",
    [
        pytest.param(1, id="a packet"),
        pytest.param(80, id="a buffer"),
        pytest.param(10_000, id="more than the kernel takes", marks=pytest.mark.slow),
    ],
)
async def test_a_reader_that_closes_in_the_middle_has_read_nothing(tmp_path: Path, entries: int) -> None:
    async with running_core(tmp_path, audited=False) as core:
        await fill(core, "url", LONG[:entries])
        at, loop = urlsplit(core.url), asyncio.get_running_loop()
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, (at.hostname, at.port))
            key = await core.key("reader")
            head = f"GET /api/blocklist/url.txt HTTP/1.1\r\nHost: core\r\nAuthorization: Bearer {key}\r\n\r\n"
            await loop.sock_sendall(client, head.encode())
            begun = await loop.sock_recv(client, 1_000)
        assert (await core.send("GET", "/api/blocklist/ip.txt", profile="reader")).status_code == 200
        while not (read := await core.core.database.read(stored.readers)):  # noqa: ASYNC110 - its own pace
            await asyncio.sleep(0.05)
        assert len(await listed(core, "url")) == entries
    assert begun.startswith(b"HTTP/1.1 200 OK")
    assert [row["list"] for row in read] == ["ip"]


async def test_a_part_of_a_list_is_never_sent(tmp_path: Path) -> None:
    """A reader that continues a download would put two lists together."""
    async with running_core(tmp_path) as core:
        await block(core, "198.51.100.23")
        await block(core, "198.51.100.24")
        whole = await core.send("GET", "/api/blocklist/ip.txt", profile="reader")
        answers = [
            await core.send("GET", "/api/blocklist/ip.txt", profile="reader", headers=headers)
            for headers in (
                {"Range": "bytes=5-"},
                {"Range": "bytes=0-3", "If-Range": whole.headers["etag"]},
                {"If-Modified-Since": "Thu, 01 Jan 2099 00:00:00 GMT"},
                {"If-None-Match": '"another"'},
            )
        ]
        head = await core.send("HEAD", "/api/blocklist/ip.txt", profile="reader")
    assert [(answer.status_code, answer.text) for answer in answers] == [(200, whole.text)] * 4
    assert (head.status_code, head.text, head.headers["content-length"]) == (200, "", whole.headers["content-length"])


@pytest.mark.slow
async def test_a_restore_while_firewalls_read_shows_them_no_list_until_somebody_resumes(tmp_path: Path) -> None:
    port = free_port()
    setup = await setup_in(tmp_path)
    await setup.users(("edge-fw", "reader"))
    settings = tmp_path / "settings.toml"
    settings.write_text(settings.read_text().replace("port = 0", f"port = {port}"))
    answers: list[tuple[int, str]] = []
    """What each list said, in order, without repetitions."""

    async def read_on() -> None:
        key = {"Authorization": f"Bearer {setup.keys['edge-fw']}"}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=key) as http:
            for name in itertools.cycle(("ip.txt", "ip.txt?family=4")):
                try:
                    answer = await http.get(f"/api/blocklist/{name}")
                except httpx.TransportError:  # there is no core
                    await asyncio.sleep(0.05)
                    continue
                found = answer.status_code, answer.text if answer.status_code == 200 else ""
                if answers[-1:] != [found]:
                    answers.append(found)

    async def said(status: int, text: str = "") -> None:
        async with asyncio.timeout(60):
            while answers[-1:] != [(status, text)]:  # noqa: ASYNC110 - another process answers
                await asyncio.sleep(0.02)

    async def command(*args: str) -> Ended:
        return await run(setup.folder, *args, "--config", "settings.toml")

    async def block_in(core: CoreProcess, data: str) -> None:
        alert = {"type": "ids", "source": "s", "sourceRef": data, "title": "t", "description": "d"}
        made = await core.client().create_alert({**alert, "artifacts": [{"dataType": "ip", "data": data}]})
        body = {"responderId": BLOCK, "objectType": "case_artifact", "objectId": made.artifacts[0].id}
        assert (await core.ended((await core.client().run(body)).id)).status == "Success"

    first, both = "198.51.100.23\n", "198.51.100.23\n198.51.100.24\n"
    left = first if stores.dialect() == "sqlite" else both
    reading = asyncio.create_task(read_on())
    async with core_process(setup) as core:
        await block_in(core, "198.51.100.23")
        if stores.dialect() == "sqlite":
            assert (await command("backup", "backup.db")).code == 0
        await block_in(core, "198.51.100.24")
        await said(200, both)
    restored = await command("restore", *(["backup.db"] if stores.dialect() == "sqlite" else []))
    async with core_process(setup):
        await said(503)
        shown = await command("blocklist", "show")
        resumed = await command("blocklist", "resume")
        await said(200, left)
    reading.cancel()
    assert (restored.code, resumed.code) == (0, 0), restored.err + resumed.err
    assert answers[answers.index((200, both)) :] == [(200, both), (503, ""), (200, left)]
    assert ("198.51.100.24" in shown.out) is (left == both)
