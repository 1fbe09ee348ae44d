"""Machines for tests of several hosts: each can crash, lose its power, or lose the network to the database.

A machine is a folder with processes behind a relay to the database, or, where the system allows it, has namespaces
of its own for processes and network.
"""

import asyncio
import os
import shutil
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.bot.chaos import BotProcess, Installation, start_process
from tests.core.core_process import until
from tests.postgresql_process import PostgresqlServer
from tests.postgresql_relay import Relay

NETWORK = f"10.77.{os.getpid() % 256}"
GATEWAY = f"{NETWORK}.1"
BRIDGE = f"rb{os.getpid()}"
"""Of this process, since others on this machine may run the same."""
POLL_S = 0.02


class Machine(ABC):
    """A host with one `responder-bot serve`."""

    address = "127.0.0.1"

    def __init__(self, installed: Installation) -> None:
        self.installed = installed
        self.serve: BotProcess | None = None
        self._is_hit = False
        """Whether it has been hit by something since it started."""
        self.is_cut = False
        """Whether it has no network to the database."""

    @property
    def is_serving(self) -> bool:
        return self.serve is not None and self.serve.is_up.is_set() and not self._is_hit

    @abstractmethod
    def database_url(self, server: PostgresqlServer, schema: str) -> str:
        """Where it finds the database."""

    async def start(self) -> None:
        """Start the product, on a machine that is switched on for it if need be, and wait until it serves."""
        wrapper = await self._boot()
        self.serve = await start_process(self.installed, "serve", wrapper)
        self._is_hit = False
        await self.serve.up()

    async def kill(self) -> None:
        """SIGKILL for the product alone: its responders' programs go on."""
        self._is_hit = True
        if self.serve is not None and not self.serve.has_ended:
            await self.serve.kill()

    async def crash(self) -> None:
        """The machine ends with all its processes; others are told by its kernel."""
        self._is_hit = True
        await self._end()

    async def lose_power(self) -> None:
        """The same, and nobody is told until it starts again."""
        self._is_hit = True
        await self._silence()
        await self._end()

    async def stop(self) -> int:
        """SIGTERM for the product; gives its exit code."""
        assert self.serve is not None
        return await self.serve.stop()

    @abstractmethod
    async def cut(self) -> None:
        """From now on nothing goes from here to the database or back."""

    @abstractmethod
    async def mend(self) -> None:
        """It does again."""

    async def close(self) -> None:
        """Leave nothing behind."""
        if self.serve is not None:
            await self.serve.stop()
        await self._end()

    @abstractmethod
    async def _boot(self) -> Sequence[str]:
        """Switch it on if it is not; returns what a command is run with there."""

    @abstractmethod
    async def _silence(self) -> None:
        """Nothing goes out any more."""

    @abstractmethod
    async def _end(self) -> None:
        """End all its processes."""


class ProcessMachine(Machine):
    """Processes in a folder of their own; a relay stands for the network to the database."""

    def __init__(self, installed: Installation, server: PostgresqlServer) -> None:
        super().__init__(installed)
        self._relay = Relay(server.url("public"))

    def database_url(self, server: PostgresqlServer, schema: str) -> str:
        return server.url(schema, "127.0.0.1", self._relay.port)

    async def cut(self) -> None:
        self.is_cut = True
        self._relay.hold()

    async def mend(self) -> None:
        self.is_cut = False
        self._relay.release()

    async def close(self) -> None:
        await super().close()
        self._relay.close()

    async def _boot(self) -> Sequence[str]:
        if not self.is_cut:
            self._relay.release()
        return ()

    async def _silence(self) -> None:
        self._relay.hold()

    async def _end(self) -> None:
        await self.kill()
        while found := self.installed.processes():  # those that they start meanwhile too
            for process in found:
                with suppress(ProcessLookupError):
                    os.kill(int(process.partition(":")[0]), signal.SIGKILL)
            await asyncio.sleep(POLL_S)


def namespaces_work() -> bool:
    """Whether this account may make namespaces with a network between them."""
    tools = all(shutil.which(tool) for tool in ("ip", "iptables", "nsenter", "unshare", "sysctl"))
    if os.getuid() or not tools:
        return False
    tried = subprocess.run(["unshare", "--net", "--pid", "--fork", "iptables", "-t", "nat", "-L"], capture_output=True)
    return tried.returncode == 0


class Bridge:
    """The network of the machines, and the way from it to Slack, which serves the loopback only."""

    def __init__(self, slack_url: str) -> None:
        self._rule = (
            *("PREROUTING", "-i", BRIDGE, "-p", "tcp", "-d", GATEWAY, "--dport", str(urlsplit(slack_url).port)),
            *("-j", "DNAT", "--to-destination", urlsplit(slack_url).netloc),
        )

    def open(self) -> None:
        """Raises CalledProcessError."""
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "address", "add", f"{GATEWAY}/24", "dev", BRIDGE)
        _run("ip", "link", "set", BRIDGE, "up")
        _run("sysctl", "-qw", f"net.ipv4.conf.{BRIDGE}.route_localnet=1")
        _run("iptables", "-t", "nat", "-A", *self._rule)

    def close(self) -> None:
        _run("iptables", "-t", "nat", "-D", *self._rule)
        _run("ip", "link", "delete", BRIDGE)


class NamespaceMachine(Machine):
    """Namespaces for processes and network, with an address on the bridge."""

    def __init__(self, installed: Installation, number: int, slack_url: str, database_port: int) -> None:
        super().__init__(installed)
        self.address = f"{NETWORK}.{10 + number}"
        self._link = f"{BRIDGE}n{number}"
        self._slack_port = urlsplit(slack_url).port
        self._database_port = database_port
        self._machine: asyncio.subprocess.Process | None = None
        self._first = 0
        """The number of its first process; 0 while it is off."""

    def database_url(self, server: PostgresqlServer, schema: str) -> str:
        return server.url(schema)

    async def _boot(self) -> Sequence[str]:
        if not self._first:
            await self._switch_on()
        enter = ("nsenter", f"--target={self._first}", "--net", "--pid", "--mount")
        return (*enter, f"--wd={self.installed.folder}")

    async def _switch_on(self) -> None:
        # The shell also reaps what nobody else waits for.
        init = ("sh", "-c", "while :; do sleep 1000; done")
        new = ("unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child")
        self._machine = await asyncio.create_subprocess_exec(*new, *init)
        children = Path(f"/proc/{self._machine.pid}/task/{self._machine.pid}/children")
        first = int((await until(lambda: children.read_text().split(), "its first process"))[0])
        await asyncio.to_thread(self._connect, first)
        self._first = first
        if self.is_cut:
            await self.cut()

    def _connect(self, first: int) -> None:
        with suppress(subprocess.CalledProcessError):  # of the machine before, if the kernel still has it
            _run("ip", "link", "delete", self._link)
        _run("ip", "link", "add", self._link, "type", "veth", "peer", "name", "eth0", "netns", str(first))
        _run("ip", "link", "set", self._link, "master", BRIDGE, "up")
        to_slack = f"-p tcp -d 127.0.0.1 --dport {self._slack_port} -j DNAT --to-destination {GATEWAY}"
        script = (
            f"ip link set lo up; ip address add {self.address}/24 dev eth0; ip link set eth0 up;"
            " sysctl -qw net.ipv4.conf.all.route_localnet=1;"
            f" iptables -t nat -A OUTPUT {to_slack}; iptables -t nat -A POSTROUTING -o eth0 -j MASQUERADE"
        )
        _run("nsenter", f"--target={first}", "--net", "sh", "-ec", script)

    async def cut(self) -> None:
        self.is_cut = True
        await self._set_rules("-A")

    async def mend(self) -> None:
        self.is_cut = False
        await self._set_rules("-D")

    async def _set_rules(self, how: str) -> None:
        """Packets to and from the database are dropped, or are so no longer."""
        if not self._first:
            return
        port = self._database_port
        script = (
            f"iptables {how} OUTPUT -p tcp -d {GATEWAY} --dport {port} -j DROP;"
            f" iptables {how} INPUT -p tcp -s {GATEWAY} --sport {port} -j DROP"
        )
        with suppress(subprocess.CalledProcessError):  # the machine has ended, and its rules with it
            await asyncio.to_thread(_run, "nsenter", f"--target={self._first}", "--net", "sh", "-ec", script)

    async def _silence(self) -> None:
        with suppress(subprocess.CalledProcessError):
            await asyncio.to_thread(_run, "ip", "link", "set", self._link, "down")

    async def _end(self) -> None:
        if self._machine is not None and self._first:
            self._machine.kill()
            await self._machine.wait()
            self._first = 0
        if self.serve is not None and not self.serve.has_ended:
            await self.serve.ended()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
