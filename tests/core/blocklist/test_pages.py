"""What core/docs/blocklist.md tells to type: each shell block, and the programs that read what it makes."""

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.core.blocklist.harness import block
from tests.core.running import RunningCore, running_core
from tests.documents import ROOT, blocks

PAGE = ROOT / "core/docs/blocklist.md"
PLACES = ("/etc/unbound", "/etc/nftables", "/etc/squid")


async def typed(core: RunningCore, folder: Path, *parts: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """Run these shell blocks of the page, with this core and folder in place of the page's."""
    text = "\n".join(parts).replace("https://responder-bot.example", core.url)
    text = text.replace("KEY", await core.key("reader", "edge-fw"))
    for place in PLACES:
        (folder / place.removeprefix("/etc/")).mkdir(exist_ok=True)
        text = text.replace(place, str(folder / place.removeprefix("/etc/")))
    env = {"PATH": f"{path}:/usr/sbin:/usr/bin:/bin"}
    return await asyncio.to_thread(
        lambda: subprocess.run(["sh", "-euc", text], capture_output=True, text=True, env=env, check=False)
    )


def shell(word: str) -> str:
    """The line of the page's shell blocks that has this word."""
    (found,) = (line for block in blocks(PAGE, "sh") for line in block.splitlines() if word in line)
    return found


async def checked_by(*command: str) -> tuple[int, str]:
    """The exit code of a program, and what it printed."""
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


async def test_curl_gets_the_list_and_an_error_keeps_the_last_one(tmp_path: Path) -> None:
    fetch = shell("fetch()")
    async with running_core(tmp_path) as core:
        await block(core, "198.51.100.23")
        by_page = await typed(core, tmp_path, shell("curl -u"))
        squid = tmp_path / "squid" / "blocked"
        first = await typed(core, tmp_path, fetch, "fetch ip.txt /etc/squid/blocked")
        kept = squid.read_text()
        wrong = await typed(core, tmp_path, fetch, "fetch ip.txt?family=5 /etc/squid/blocked")
    assert (by_page.stdout, first.returncode, kept) == ("198.51.100.23\n", 0, "198.51.100.23\n")
    assert (wrong.returncode, squid.read_text()) == (22, kept)


async def test_unbound_takes_what_the_page_makes(tmp_path: Path) -> None:
    check = shutil.which("unbound-checkconf", path="/usr/sbin:/usr/bin")
    async with running_core(tmp_path) as core:
        await block(core, "evil.example", "domain")
        await block(core, "_dmarc.evil.test", "domain")
        made = await typed(core, tmp_path, shell("fetch()"), shell("local-zone"))
    conf = tmp_path / "unbound" / "blocked.conf"
    assert made.returncode == 0, made.stderr
    assert conf.read_text().splitlines() == [
        f'local-zone: "{host}" always_nxdomain' for host in ("_dmarc.evil.test", "evil.example")
    ]
    if check is None:
        pytest.skip("unbound is not installed, so only the lines were looked at")
    whole = tmp_path / "unbound.conf"
    whole.write_text(f'server:\n  chroot: ""\n  username: ""\n  directory: "{tmp_path}"\n  include: {conf}\n')
    assert (await checked_by(check, str(whole)))[0] == 0


@pytest.mark.root
async def test_nftables_takes_what_the_page_makes(tmp_path: Path) -> None:
    nft = shutil.which("nft", path="/usr/sbin:/usr/bin")
    fake = tmp_path / "bin"
    fake.mkdir()
    (fake / "nft").write_text(f'#!/bin/sh\nexec cat > "{tmp_path}/rules"\n')
    (fake / "nft").chmod(0o755)
    async with running_core(tmp_path) as core:
        for data, kind in (("198.51.100.23", "ip"), ("203.0.113.0/24", "cidr"), ("2001:db8::1", "ip")):
            await block(core, data, kind)
        made = await typed(core, tmp_path, shell("fetch()"), shell("flush set"), path=str(fake))
    rules = (tmp_path / "rules").read_text()
    assert made.returncode == 0, made.stderr
    assert re.findall(r"\{ (\S+) \}", rules) == ["198.51.100.23", "203.0.113.0/24"]
    if nft is None:
        pytest.skip("nftables is not installed, so only the lines were looked at")
    table = "add table inet filter\nadd set inet filter blocked { type ipv4_addr; flags interval; }\n"
    (tmp_path / "whole").write_text(table + rules)
    code, printed = await checked_by(nft, "-c", "-f", str(tmp_path / "whole"))
    if "Operation not permitted" in printed:
        pytest.skip("nftables can't be used by this account, so only the lines were looked at")
    assert code == 0, printed


async def test_squid_takes_what_the_page_makes(tmp_path: Path) -> None:
    squid = shutil.which("squid", path="/usr/sbin:/usr/bin")
    (lines,) = (block for block in blocks(PAGE, "text") if "dstdomain" in block)
    async with running_core(tmp_path) as core:
        await block(core, "evil.example", "domain")
        await typed(core, tmp_path, shell("fetch()"), 'fetch "domain.txt" /etc/squid/blocked')
    blocked = tmp_path / "squid" / "blocked"
    assert blocked.read_text() == "evil.example\n"
    if squid is None:
        pytest.skip("squid is not installed, so only the lines were looked at")
    conf = tmp_path / "squid.conf"
    acl = lines.replace("/etc/squid", str(blocked.parent))
    conf.write_text(f"http_port 127.0.0.1:3129\nvisible_hostname test\n{acl}")
    code, printed = await checked_by(squid, "-k", "parse", "-f", str(conf))
    assert code == 0, printed
