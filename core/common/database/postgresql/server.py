"""Where a database is, and connections to it."""

import re
import threading
import time
from typing import Any, TypeVar

import psycopg
from psycopg import conninfo
from psycopg.rows import dict_row

from core.common.database.failures import Failures
from core.common.database.location import SETTING
from core.common.database.postgresql.errors import advice, describe
from core.common.database.postgresql.statements import Connection, adapt, run_plainly
from core.common.errors import ResponderBotError, StoreUnavailableError

T = TypeVar("T")

OLDEST = 14
CONNECT_TIMEOUT_S = 5
RETRY_S = 1.0  # while the server can't be reached, one attempt a second is made; all others fail at once
CUT_S = 10.0  # until a silent connection is given up
IDLE_IN_TRANSACTION_S = 10  # the server ends a transaction whose host has stopped in the middle, since others wait

_KEEPALIVES: dict[str, Any] = {
    "keepalives_idle": 3,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": int(CUT_S * 1000),
}
_SEARCH_PATH = re.compile(r"\s*-c\s*search_path=(\S+)")


def application_name(schema: str) -> str:
    """What PostgreSQL's administrators see of our connections, and by which commands find that there are any."""
    return f"responder-bot {schema}"[:63]


class Server:
    """A PostgreSQL, by the URL of the settings.

    The tables are in `schema` or, if the URL has a search path, in the schema of that name with `suffix`.
    """

    def __init__(self, url: str, schema: str, suffix: str = "") -> None:
        self.failures = Failures()
        self.is_pooled = False
        """Whether a pooler is in between, so that no session state can be relied on."""
        self._lock = threading.Lock()
        self._down: ResponderBotError | None = None
        self._retry_at = float("-inf")
        try:
            options_of_url: dict[str, Any] = conninfo.conninfo_to_dict(url)
        except psycopg.Error:  # its message may quote a password
            sentence = f"{SETTING} is no URL of a PostgreSQL; write postgresql://USER:PASSWORD@HOST/DATABASE."
            raise ResponderBotError("bad_request", sentence) from None
        options = str(options_of_url.pop("options", ""))
        search_path = _SEARCH_PATH.search(options)
        self.schema = f"{search_path[1]}{suffix}" if search_path else schema
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,62}", self.schema):
            sentence = f"The search path in {SETTING} names no schema; write a word of small letters."
            raise ResponderBotError("bad_request", sentence)
        rest = _SEARCH_PATH.sub("", options).strip()
        self._password = str(options_of_url.get("password") or "")
        self._given: dict[str, Any] = {
            **{"connect_timeout": CONNECT_TIMEOUT_S, "target_session_attrs": "read-write", **_KEEPALIVES},
            **options_of_url,
            **({"options": rest} if rest else {}),
            **{"client_encoding": "UTF8", "application_name": application_name(self.schema)},
        }
        host = str(options_of_url.get("host") or options_of_url.get("hostaddr") or "localhost")
        port = f":{options_of_url['port']}" if options_of_url.get("port") else ""
        self.place = f"postgresql://{host}{port}/{options_of_url.get('dbname') or ''}"
        """For messages, without user and password."""

    def open(self) -> Connection:
        """The first connection. Raises ResponderBotError with what is wrong with the settings or the server."""
        try:
            connection = self._open(is_first=True)
        except psycopg.Error as error:
            message = self._redacted(describe(error))
            sentence = f"The database {self.place} can't be opened ({message}); {advice(message)} ({SETTING})."
            raise ResponderBotError("unavailable", sentence) from None
        version, encoding = connection.info.server_version, connection.info.parameter_status("server_encoding")
        problem = ""
        if version < OLDEST * 10_000:
            old = f"{version // 10_000}.{version % 10_000}"
            problem = f"is PostgreSQL {old}; upgrade it to {OLDEST} or later"
        elif encoding != "UTF8":
            problem = f"has the encoding {encoding}; create one with `ENCODING 'UTF8' TEMPLATE template0`"
        if problem:
            connection.close()
            raise ResponderBotError("unavailable", f"The database {self.place} {problem}, or name another.")
        return connection

    def connect(self) -> Connection:
        """A further connection. Raises ResponderBotError("unavailable"), at once if others just failed."""
        with self._lock:
            if self._down is not None:
                if time.monotonic() < self._retry_at:
                    raise StoreUnavailableError(self._down.message)
                self._retry_at = time.monotonic() + RETRY_S
        try:
            connection = self._open()
        except psycopg.Error as error:
            with self._lock:
                self._down = self.unreachable(error)
                self._retry_at = time.monotonic() + RETRY_S
                raise self._down from None
        self._down = None
        return connection

    def unreachable(self, error: BaseException) -> ResponderBotError:
        message = self._redacted(describe(error))
        sentence = (
            f"The store can't be reached ({message}); look at PostgreSQL at {self.place}."
            " Work goes on by itself once it is back."
        )
        return self.failures.unavailable(sentence)

    def begin(self, kind: str = "") -> str:
        """The statements that begin a transaction, in one round trip."""
        return f"BEGIN {kind}" + (f"; {self._session('LOCAL ')}" if self.is_pooled else "")

    def _open(self, *, is_first: bool = False) -> Connection:
        connection = Connection.connect(**self._given, autocommit=True, row_factory=dict_row)
        try:
            adapt(connection)
            if is_first:
                self.is_pooled = self._is_behind_pooler(connection)
            if self.is_pooled:  # what is set or prepared would be another client's
                connection.prepare_threshold = None
            else:
                run_plainly(connection, self._session(""))
        except BaseException:
            connection.close()
            raise
        return connection

    def _session(self, local: str) -> str:
        """What holds for a session, or for a transaction."""
        settings = {
            "search_path": self.schema,
            "statement_timeout": "10s",
            "lock_timeout": "10s",
            "idle_in_transaction_session_timeout": f"{IDLE_IN_TRANSACTION_S}s",
            "standard_conforming_strings": "on",
            "tcp_keepalives_idle": "3",
            "tcp_keepalives_interval": "2",
            "tcp_keepalives_count": "3",
            "tcp_user_timeout": f"{CUT_S:g}s",
        }
        lines = [f"SET {local}{name} = '{value}'" for name, value in settings.items()]
        # What was acknowledged survives a power loss, whatever the server's or the role's setting is.
        durable = f"set_config('synchronous_commit', 'on', {'true' if local else 'false'})"
        lines.append(f"SELECT {durable} WHERE current_setting('synchronous_commit') = 'off'")
        return "; ".join(lines)

    @staticmethod
    def _is_behind_pooler(connection: Connection) -> bool:
        """A pooler tells its clients another process id than the server's, since it shares the server's processes."""
        row = connection.execute("SELECT pg_backend_pid() AS pid").fetchone()
        return row is None or row["pid"] != connection.info.backend_pid

    def _redacted(self, message: str) -> str:
        return message.replace(self._password, "...") if self._password else message
