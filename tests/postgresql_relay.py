"""A relay between a client and its PostgreSQL: the network that tests cut."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from psycopg import conninfo

from tests.postgresql import url_with


class Relay:
    """Passes bytes to and from the server on `port` of the loopback, until told otherwise.

    `change` may change what the server says. It has threads of its own, since clients open databases on the event loop.
    """

    def __init__(self, url: str, change: Callable[[bytes], bytes] = lambda data: data) -> None:
        self._url = url
        self.lead_to(url)
        self._change = change
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._passes = threading.Event()
        self._passes.set()
        self.is_open = True
        """Whether new connections are taken."""
        self.on_commit: Callable[[], None] | None = None
        """Called once the server has got a commit that tells others of it."""
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The URL of the same database through the relay."""
        return url_with(self._url, host="127.0.0.1", port=self.port)

    def lead_to(self, url: str) -> None:
        """Connect new clients with this server."""
        given = conninfo.conninfo_to_dict(url)
        self._server = (str(given["host"]), int(given.get("port") or 5432))

    def hold(self) -> None:
        """Let nothing through, without a word to either side."""
        self._passes.clear()

    def release(self) -> None:
        """Let through what comes, and what was held."""
        self._passes.set()

    def end_connections(self) -> None:
        """End all connections; what was held is lost with them."""
        self._end(*self._sockets)

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self.is_open = False
        self.end_connections()

    def close(self) -> None:
        self.cut()
        self.release()
        self._end(self._listener)
        self._listener.close()
        self._thread.join()
        for one in self._sockets:
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = self._connected() if self.is_open else None
                if far is None:
                    near.close()
                    continue
                self._sockets += [near, far]
                threading.Thread(target=self._pass_on, args=(near, far), daemon=True).start()
                threading.Thread(target=self._pass_back, args=(far, near), daemon=True).start()

    def _connected(self) -> socket.socket | None:
        """A connection to the server; None while it is dead."""
        host, port = self._server
        if not host.startswith("/"):
            with suppress(OSError):
                return socket.create_connection((host, port))
            return None
        far = socket.socket(socket.AF_UNIX)
        try:
            far.connect(f"{host}/.s.PGSQL.{port}")
        except OSError:
            far.close()
            return None
        return far

    def _pass_on(self, near: socket.socket, far: socket.socket) -> None:
        with suppress(OSError):
            while data := near.recv(65_536):
                self._passes.wait()
                if b"COMMIT" in data and b"NOTIFY" in data and self.on_commit is not None:
                    self.hold()  # or the answer could be back before it is called
                    far.sendall(data)
                    self.on_commit()
                    self.release()
                else:
                    far.sendall(data)
        self._passes.wait()
        self._end(near, far)

    def _pass_back(self, far: socket.socket, near: socket.socket) -> None:
        with suppress(OSError):
            while data := far.recv(65_536):
                self._passes.wait()
                near.sendall(self._change(data))
        self._passes.wait()
        self._end(near, far)

    @staticmethod
    def _end(*sockets: socket.socket) -> None:
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay(url: str, change: Callable[[bytes], bytes] = lambda data: data) -> Iterator[Relay]:
    made = Relay(url, change)
    try:
        yield made
    finally:
        made.close()
