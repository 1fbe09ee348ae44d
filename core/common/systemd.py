"""Tell systemd that the service is ready, and then that it is alive: sd_notify(3), for units of `Type=notify`."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from core.common.tasks import cancel_and_wait


@asynccontextmanager
async def alive() -> AsyncIterator[None]:
    """Say READY=1, and WATCHDOG=1 twice in each WatchdogSec while the event loop turns; STOPPING=1 at the end."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        yield
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"  # of the abstract namespace
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.setblocking(False)

        def say(state: bytes) -> None:
            with suppress(OSError):  # a manager that doesn't listen is no reason to end
                sock.sendto(state, address)

        async def keep_saying() -> None:
            while interval_us := int(os.environ.get("WATCHDOG_USEC", 0)):
                await asyncio.sleep(interval_us / 2_000_000)
                say(b"WATCHDOG=1")

        say(b"READY=1")
        watchdog = asyncio.create_task(keep_saying())
        try:
            yield
        finally:
            await cancel_and_wait(watchdog)
            say(b"STOPPING=1")
