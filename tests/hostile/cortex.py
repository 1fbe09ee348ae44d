"""A Cortex server that answers each call with an attack: `python -m tests.hostile.cortex WHAT`.

Prints its port, then a line when an attack is over because the client closed the connection.
"""

import gzip
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import repeat

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def zeros_twice_compressed() -> Iterator[bytes]:
    body = gzip.compress(gzip.compress(bytes(1 << 30), 1), 1)
    yield HEAD + b"Content-Encoding: gzip, gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def endless(start: bytes, repeated: bytes) -> Iterator[bytes]:
    yield start
    yield from repeat(repeated * (1 + 65_536 // len(repeated)))


ATTACKS: Mapping[str, Callable[[], Iterator[bytes]]] = {
    "zeros, twice compressed": zeros_twice_compressed,
    "endless 100": lambda: endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "endless 103": lambda: endless(b"", b"HTTP/1.1 103 Early Hints\r\nLink: </a>; rel=preload\r\n\r\n"),
    "endless headers": lambda: endless(HEAD, b"X-A: b\r\n"),
    "an endless header": lambda: endless(HEAD + b"X-A: ", b"x"),
    "endless cookies": lambda: endless(HEAD, b"Set-Cookie: a=b; Path=/\r\n"),
    "endless chunks of a byte": lambda: endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "endless extension of a chunk": lambda: endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x"),
    "endless trailers": lambda: endless(HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n0\r\n", b"X-A: b\r\n"),
    "endless answers": lambda: endless(b"", HEAD + b"Content-Length: 2\r\n\r\n[]"),
    "an endless body": lambda: endless(HEAD + b"\r\n", b" "),
}


def attack(connection: socket.socket, parts: Iterable[bytes]) -> None:
    with connection, suppress(OSError):
        connection.recv(65_536)
        for part in parts:
            connection.sendall(part)
        while connection.recv(65_536):
            pass
    print("over", flush=True)  # noqa: T201 - for the test


def main() -> None:
    make = ATTACKS[sys.argv[1]]
    # What ends is made once, before anybody waits for it.
    parts = list(make()) if make is zeros_twice_compressed else None
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)  # noqa: T201 - for the test
        while True:
            connection, _ = server.accept()
            threading.Thread(target=attack, args=(connection, parts or make()), daemon=True).start()


if __name__ == "__main__":
    main()
