"""Ports for servers that start later than their port is named, or again at the same one."""

import os
import secrets
import socket
from contextlib import suppress
from itertools import count

OF_A_WORKER = 1_500
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 12
_numbers = count(secrets.randbelow(OF_A_WORKER))


def free_port() -> int:
    """A port below the range from which the kernel gives one to whoever asks for any."""
    for number in _numbers:
        port = 10_000 + OF_A_WORKER * _worker + number % OF_A_WORKER
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            break
    return port
