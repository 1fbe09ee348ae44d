"""A PostgreSQL that can't be used is a sentence without secrets; one that comes back is used again."""

import asyncio
import os
import secrets
import socket
import subprocess
import sys
import threading
import traceback
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, closing, contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from bot.outbox.store import open_stores
from core.common.database import Database, Row, Search, Transaction
from core.common.database.location import PostgresqlUrl
from core.common.database.opening import CORES_SCHEMA, CORES_TABLE
from core.common.database.postgresql import PostgresqlDatabase
from core.common.database.schema import Opening
from core.common.errors import ResponderBotError
from core.models import SearchInput
from core.records.search import search
from core.store import actions, events, objects
from core.store.database.backup import IDS_A_MS, LEAST_GAP, made_at, resume
from core.store.database.opening import open_database
from core.store.database.schema import MIGRATIONS
from core.store.database.sequences import touch
from core.store.search import docs_of
from tests import stores
from tests.core.core_process import until
from tests.core.test_cli import run
from tests.postgresql import programs, schema_url, server_url, url_with
from tests.postgresql_process import PostgresqlServer
from tests.postgresql_relay import relay

SECRET = "s3cret-pass"
own_server = pytest.mark.skipif(
    "TEST_POSTGRESQL" in os.environ, reason="another server asks for other passwords, and has programs of its own"
)
MESSAGES = [bytes([kind]) for kind in b"ACDEGHIKNRSTVWZcdnst123"]  # of the server, by their first byte


@pytest.fixture
def url(tmp_path: Path) -> str:
    return stores.on_postgresql(tmp_path / "core.db").text


def opened(url: str) -> AbstractAsyncContextManager[Database]:
    return stores.opened(PostgresqlUrl(url))


def refusal(url: str) -> str:
    with pytest.raises(ResponderBotError) as caught:
        open_database(PostgresqlUrl(url))
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert caught.value.message.endswith(".")
    assert "\n" not in caught.value.message
    return caught.value.message


def admin(sql: str) -> None:
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(sql.encode())


def schema_of(url: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(url)["options"]).partition("=")[2]


@contextmanager
def made(what: str, options: str) -> Iterator[None]:
    """Let the server have this, such as a role, within."""
    admin(f"DROP {what.replace(' ', ' IF EXISTS ')}")  # of a run that was killed
    admin(f"CREATE {what} {options}")
    try:
        yield
    finally:
        admin(f"DROP {what}")


# --- what is refused at the start -------------------------------------------------------------------------------------


def test_a_server_that_is_none_is_a_sentence() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    message = refusal(f"postgresql://core:{SECRET}@127.0.0.1:{port}/core")
    assert f"The database postgresql://127.0.0.1:{port}/core can't be opened (" in message
    assert "start PostgreSQL there, or correct the settings ([core] database)." in message


def test_another_protocol_is_a_sentence() -> None:
    def answer() -> None:
        with suppress(OSError):
            while True:
                client, _ = server.accept()
                with client:
                    client.recv(100)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        message = refusal(f"postgresql://core:{SECRET}@127.0.0.1:{server.getsockname()[1]}/core")
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert "name the host and port of a PostgreSQL in the settings" in message


@pytest.mark.parametrize(
    "url", [f"postgresql://core:{SECRET}%zz@db/core", f"postgresql://core:{SECRET}@db/core?colour=red"]
)
def test_a_url_that_is_none_is_a_sentence(url: str) -> None:
    assert refusal(url) == (
        "[core] database is no URL of a PostgreSQL; write postgresql://USER:PASSWORD@HOST/DATABASE."
    )


def test_a_search_path_that_is_no_schema_is_a_sentence() -> None:
    assert "names no schema" in refusal(url_with(server_url(), options='-csearch_path=a";b'))


@own_server
def test_a_password_that_is_wrong_is_told_without_it() -> None:
    with made("ROLE asked", "LOGIN PASSWORD 'another'"):
        message = refusal(url_with(server_url(), user="asked", password=SECRET))
    assert '(password authentication failed for user "asked"); correct the user and the password' in message


def test_a_database_that_is_missing_is_a_sentence() -> None:
    message = refusal(url_with(server_url(), dbname="nowhere"))
    assert '(database "nowhere" does not exist); create it' in message


def test_a_role_that_may_not_make_tables_is_a_sentence(url: str) -> None:
    with made("ROLE weak", f"LOGIN PASSWORD '{SECRET}'"):
        message = refusal(url_with(url, user="weak", password=SECRET))
    assert "The role weak has too few rights in" in message
    database = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    assert f'GRANT CREATE, CONNECT ON DATABASE "{database}" TO "weak"' in message


def test_a_database_that_is_not_utf_8_is_a_sentence() -> None:
    with made("DATABASE latin", "ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"):
        message = refusal(url_with(server_url(), dbname="latin"))
    assert "has the encoding LATIN1; create one with" in message


def test_a_server_that_is_too_old_is_a_sentence(url: str) -> None:
    def older(data: bytes) -> bytes:
        name = b"server_version\0"
        start = data.find(name)
        if start < 0:
            return data
        end = data.index(b"\0", start + len(name))
        return data[: start + len(name)] + b"13.9".ljust(end - start - len(name), b" ") + data[end:]

    with relay(url, older) as between:
        assert "is PostgreSQL 13.9; upgrade it to 14 or later" in refusal(between.url)


def test_a_schema_that_holds_another_s_tables_is_a_sentence(url: str) -> None:
    admin(f"CREATE SCHEMA {schema_of(url)}")
    admin(f"CREATE TABLE {schema_of(url)}.event (x INTEGER)")
    message = refusal(url)
    assert 'can\'t be opened (relation "event" already exists); correct that, or name another schema' in message


async def test_the_bot_needs_the_tables_of_its_core_and_a_schema_of_its_own(url: str) -> None:
    schema = schema_of(url)
    with pytest.raises(ResponderBotError) as alone:
        open_stores(PostgresqlUrl(url))
    assert alone.value.message == (
        f"Core has no database in the schema {schema}; start core first, or name the one that it has with"
        " [core] database."
    )
    async with opened(url):
        admin(f"CREATE SCHEMA {schema}_bot")
        admin(f"CREATE TABLE {schema}_bot.migration (number BIGINT)")
        with pytest.raises(ResponderBotError) as of_bot:
            open_stores(PostgresqlUrl(url))
        assert of_bot.value.message.startswith(f"The schema {schema}_bot of postgresql:")
        admin(f"DROP SCHEMA {schema}_bot CASCADE")
        admin("DROP ROLE IF EXISTS onlybot")
        admin("CREATE ROLE onlybot LOGIN")
        admin(f"CREATE SCHEMA {schema}_bot AUTHORIZATION onlybot")
        bots = open_stores(PostgresqlUrl(url_with(url, user="onlybot")))
        try:
            assert await bots.messages.read(lambda reads: reads.rows("SELECT 1 FROM message")) == []
            with pytest.raises(ResponderBotError, match="permission denied"):
                await bots.messages.read(lambda reads: reads.rows(f"SELECT 1 FROM {schema}.event"))  # noqa: S608
        finally:
            await bots.close()
            admin(f"DROP SCHEMA {schema}_bot CASCADE")
            admin("DROP ROLE onlybot")


@pytest.mark.parametrize("schema", ["user", "order"])
async def test_a_schema_may_have_a_name_that_is_a_word_of_sql(schema: str) -> None:
    async with opened(schema_url(schema)) as one, opened(schema_url(schema)) as other:
        await noticed(one, lambda: asyncio.ensure_future(other.transaction(insert(1))))
        await one.transaction(touch)  # its own notification arrives as well
        assert (one.remark(), await ids(one)) == ("", [1])


async def test_a_managed_server_that_tells_nothing_of_itself_is_used(url: str) -> None:
    """Where only superusers may ask for the number of the server, tables and database are known by theirs."""

    def permit(sql: str) -> None:
        with psycopg.connect(url_with(server_url(), dbname="managed"), autocommit=True) as connection:
            connection.execute(sql.encode())

    tenants = url_with(server_url(), dbname="managed", user="tenant", password=SECRET)
    function = "ON FUNCTION pg_control_system()"
    with made("ROLE tenant", f"LOGIN PASSWORD '{SECRET}'"), made("DATABASE managed", "OWNER tenant"):
        for change in (f"REVOKE ALL {function} FROM PUBLIC", "SELECT 1", f"GRANT ALL {function} TO PUBLIC"):
            permit(change)
            async with opened(tenants) as database:
                await database.transaction(touch)
                assert await database.read(made_at) is None


async def test_a_database_of_a_newer_release_is_refused(url: str) -> None:
    async with opened(url) as database:
        await database.transaction(lambda tx: tx.run("INSERT INTO migration (number) VALUES (1000)"))
    assert refusal(url) == ("This database was made by a newer release; run that one, or name another database.")


async def test_a_database_from_before_the_first_release_is_refused(url: str) -> None:
    async with opened(url) as database:
        await database.transaction(lambda tx: tx.run("DROP TABLE in_force"))
    assert "or those from before 0.2.0, which can't be upgraded; " in refusal(url)


def test_without_psycopg_the_url_is_a_sentence() -> None:
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from core.common.database.location import PostgresqlUrl\n"
        "from core.store.database.opening import open_database\n"
        "open_database(PostgresqlUrl('postgresql://core:s3cret-pass@db/core'))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    last = ended.stderr.splitlines()[-1]
    assert "install responder-bot with its extra `postgresql`" in last
    assert SECRET not in last


async def test_hosts_that_start_at_once_make_the_tables_once(url: str) -> None:
    found = await asyncio.gather(*(asyncio.to_thread(open_database, PostgresqlUrl(url)) for _ in range(4)))
    numbers = await asyncio.gather(*(database.transaction(objects.next_id) for database in found for _ in range(10)))
    assert sorted(numbers) == list(range(1, 41))
    for database in found:
        await database.close()


# --- what is lost while it runs ---------------------------------------------------------------------------------------


def ids(database: Database) -> "asyncio.Future[list[int]]":
    sql = "SELECT id FROM object ORDER BY id"
    return asyncio.ensure_future(database.read(lambda reads: [row["id"] for row in reads.rows(sql)]))


def insert(number: int) -> Callable[[Transaction], None]:
    return lambda tx: objects.insert(tx, number, "case", "{}")


async def test_connections_that_the_server_ends_are_made_anew(url: str) -> None:
    async with opened(url) as database:
        await database.transaction(insert(1))
        assert await ids(database) == [1]
        ours = f"application_name LIKE '%{schema_of(url)}%'"  # others use this server at the same time
        admin(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")  # noqa: S608 - our own schema
        await database.transaction(insert(2))
        assert await ids(database) == [1, 2]


async def test_a_server_that_cannot_be_reached_is_a_503_at_once_and_used_when_it_is_back(url: str) -> None:
    with relay(url) as between:
        async with opened(between.url) as database:
            await database.transaction(insert(1))
            between.cut()
            for _ in range(20):  # without failing at once, each would try to connect
                with pytest.raises(
                    ResponderBotError, match=r"^The store can't be reached \(.*\); look at Postgre"
                ) as read:
                    await ids(database)
                with pytest.raises(ResponderBotError) as written:
                    await database.transaction(insert(2))
            assert read.value.code == written.value.code == "unavailable"
            assert database.failure(60)
            between.is_open = True
            while True:  # each attempt fails or works; there is nothing to wait for
                with suppress(ResponderBotError):
                    await database.transaction(insert(3))
                    break
                await asyncio.sleep(0.05)
            assert await ids(database) == [1, 3]


@pytest.mark.parametrize("is_back", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_a_commit_without_an_answer_is_looked_up(url: str, is_back: bool) -> None:
    """The server commits, and the network is cut before its answer is read."""
    with relay(url) as between:
        async with opened(between.url) as database, opened(url) as other:

            def cut() -> None:
                between.on_commit = None
                between.cut()
                between.is_open = is_back

            await database.transaction(insert(1))
            between.on_commit = cut
            if is_back:
                await database.transaction(insert(2))
                assert await ids(database) == [1, 2]
            else:
                with pytest.raises(ResponderBotError) as caught:
                    await database.transaction(insert(2))
                assert caught.value.code == "unavailable"
                assert await ids(other) in ([1], [1, 2])  # nobody was told that it is written


@pytest.mark.slow
@own_server
async def test_a_commit_is_not_taken_for_another_one_of_a_copy_with_its_number() -> None:
    """The server is lost with its last commit, and the copy that takes its place gives its number again."""
    lost, copy, armed = PostgresqlServer(), PostgresqlServer(), list[bool]()
    await lost.create()
    try:
        with relay(lost.url("core"), lambda data: b"" if armed and b"COMMIT" in data else data) as between:
            async with opened(between.url) as database:
                await database.transaction(insert(1))
                await copy.take_place_of(lost)

                def fail_over() -> None:
                    between.on_commit = None
                    between.lead_to(copy.url("core"))
                    number = "SELECT CAST(CAST(pg_current_xact_id() AS TEXT) AS BIGINT)"
                    newest = lost.rows("core", number)
                    while copy.rows("core", number) < newest:
                        pass
                    between.end_connections()
                    armed.clear()

                armed.append(True)
                between.on_commit = fail_over
                with pytest.raises(ResponderBotError) as caught:
                    await database.transaction(insert(2))
                assert caught.value.code == "unavailable"
                assert await ids(database) == [1]
                await database.transaction(insert(3))
                assert await ids(database) == [1, 3]
    finally:
        await lost.close()
        await copy.close()


@pytest.mark.slow
async def test_other_hosts_wait_for_a_stopped_one_only_for_some_seconds(url: str) -> None:
    """A host that stops in the middle of a transaction, as a frozen machine does, holds up the others for 10 s."""
    program = """
import asyncio, sys, threading
from core.common.database.location import PostgresqlUrl
from core.store import objects
from core.store.database.opening import open_database

def work(tx):
    objects.next_id(tx)
    print("in the middle", flush=True)
    threading.Event().wait()

async def main():
    await open_database(PostgresqlUrl(sys.argv[1])).transaction(work)

asyncio.run(main())
"""
    async with opened(url) as database:
        stopped = await asyncio.create_subprocess_exec(sys.executable, "-c", program, url, stdout=subprocess.PIPE)
        try:
            assert stopped.stdout is not None
            assert await stopped.stdout.readline() == b"in the middle\n"
            while True:
                with suppress(ResponderBotError):  # it may have waited as long as it may
                    assert await database.transaction(objects.next_id) == 1
                    break
        finally:
            stopped.kill()
            await stopped.communicate()


# --- several hosts ----------------------------------------------------------------------------------------------------


async def noticed(database: Database, act: Callable[[], "asyncio.Future[None]"]) -> None:
    """Wait until `database` has noticed what another host commits."""
    told = asyncio.Event()
    database.on_commit(told.set)
    version = database.version()
    await act()
    async with asyncio.timeout(30):
        while database.version() == version:
            await told.wait()
            told.clear()


async def test_a_commit_of_another_host_is_noticed(url: str) -> None:
    async with opened(url) as one, opened(url) as other:
        for number in range(1, 4):
            await noticed(one, lambda n=number: asyncio.ensure_future(other.transaction(insert(n))))  # type: ignore[misc] # n is bound here
            assert await ids(one) == list(range(1, number + 1))
        assert one.remark() == ""


@pytest.mark.slow
async def test_a_pooler_that_drops_notifications_is_noticed_and_polled_through(url: str) -> None:
    def without(data: bytes) -> bytes:
        kept, at = b"", 0
        while data[at : at + 1] in MESSAGES:
            end = at + 1 + int.from_bytes(data[at + 1 : at + 5], "big")
            kept += b"" if data[at : at + 1] == b"A" else data[at:end]
            at = end
        return kept + data[at:]

    with relay(url, without) as between:
        async with opened(between.url) as one, opened(url) as other:
            await one.transaction(touch)  # its own notification does not arrive either
            await until(one.remark, "finding out")  # the thread that does tells nobody
            assert "A pooler keeps notifications from arriving" in one.remark()
            await noticed(one, lambda: asyncio.ensure_future(other.transaction(insert(1))))


async def test_nothing_of_a_session_is_relied_on_behind_a_pooler(url: str) -> None:
    """One in transaction mode gives each transaction to another of the server's sessions."""

    def as_pooler(data: bytes) -> bytes:
        start = data.find(b"K\0\0\0\x0c") + 5  # where the server tells the number of its process
        return data if start < 5 else data[:start] + b"\0\0\0\x01" + data[start + 4 :]

    prepared = "SELECT statement FROM pg_prepared_statements"
    with relay(url, as_pooler) as between:
        async with opened(between.url) as database, opened(url) as other:
            for number in range(1, 11):
                await database.transaction(insert(number))
                assert len(await ids(database)) == number
            assert await database.transaction(lambda tx: tx.rows(prepared)) == []
            assert await database.read(lambda reads: reads.rows(prepared)) == []
            assert "A pooler keeps notifications from arriving" in database.remark()
            await noticed(database, lambda: asyncio.ensure_future(other.transaction(insert(11))))


async def test_hosts_see_each_other_s_commits_whatever_the_role_s_isolation_is(url: str) -> None:
    options = f"-c search_path={schema_of(url)} -c default_transaction_isolation=serializable"
    given = url_with(url, options=options)
    async with opened(given) as one, opened(given) as other:
        both = (one, other)
        numbers = await asyncio.gather(*(database.transaction(objects.next_id) for database in both for _ in range(50)))
    assert sorted(numbers) == list(range(1, 101))


async def test_a_work_that_has_caught_the_error_of_a_statement_fails_alone(url: str) -> None:
    def catches(tx: Transaction) -> None:
        with suppress(psycopg.Error):
            tx.run("SELECT 1 / 0")

    async with opened(url) as database:
        works = [insert(1), catches, insert(2)]
        results = await asyncio.gather(*map(database.transaction, works), return_exceptions=True)
        assert [isinstance(result, Exception) for result in results] == [False, True, False]
        assert await ids(database) == [1, 2]


async def test_a_text_that_is_too_long_for_an_index_is_refused_alone(url: str) -> None:
    def insert_long(tx: Transaction) -> None:
        objects.insert(tx, 3, "alert", "{}", unique_key=secrets.token_hex(8_000))

    async with opened(url) as database:
        works = [insert(1), insert_long, insert(2)]
        results = await asyncio.gather(*map(database.transaction, works), return_exceptions=True)
        refused = [result.code for result in results if isinstance(result, ResponderBotError)]
        assert refused == ["too_large"]
        assert await ids(database) == [1, 2]
        assert database.failure(60) == ""


async def test_events_have_the_order_of_their_commits(url: str) -> None:
    """Whoever has read up to a number misses none below it, whatever host wrote it and whatever was rolled back."""

    def work(tx: Transaction) -> None:
        events.record(tx, 1, 2, at=1, type="x", object_type="case", root_id=1, user="u")

    def failing(tx: Transaction) -> None:
        work(tx)
        raise ValueError

    async with opened(url) as one, opened(url) as other:
        seen: list[int] = []

        async def follow() -> None:
            while len(seen) < 80:
                rows = await one.read(lambda reads: events.after(reads, seen[-1] if seen else 0, 500))
                seen.extend(row["seq"] for row in rows)

        following = asyncio.create_task(follow())
        writes = [
            database.transaction(one_of) for _ in range(20) for database in (one, other) for one_of in (work, failing)
        ]
        await asyncio.gather(*writes, return_exceptions=True)
        await following
    assert seen == list(range(1, 81))


# --- what is stored ---------------------------------------------------------------------------------------------------


@own_server
async def test_a_dump_can_be_restored_and_is_then_marked_as_a_backup(url: str) -> None:
    async with opened(url) as database:
        await database.transaction(lambda tx: objects.insert(tx, 1, "alert", '{"case": "~5", "title": "\\u0000"}'))
        await database.transaction(
            lambda tx: events.record(tx, 1, at=77, type="x", object_type="y", root_id=1, user="u")
        )
    async with opened(url) as database:
        assert await database.read(made_at) is None
        row = await database.read(lambda reads: reads.row("SELECT current_schema() AS name"))
    assert row is not None
    name = row["name"]
    dumped = await output("pg_dump", "--schema", name, server_url())
    admin(f"DROP SCHEMA {name} CASCADE")
    await output("psql", "--quiet", "--set=ON_ERROR_STOP=1", server_url(), given=dumped)
    async with opened(url) as database:
        assert await database.read(made_at) == 77
        assert await database.read(lambda reads: objects.alerts_of(reads, 5, 10)) == [1]
        await database.transaction(lambda tx: resume(tx, 77, 1000))
        assert await database.read(events.bounds) == (1, 1 + LEAST_GAP + (1000 - 77) * IDS_A_MS)
    async with opened(url) as database:
        assert await database.read(made_at) is None


async def test_what_a_command_says_of_backups_on_postgresql(url: str, tmp_path: Path) -> None:
    settings = ["--config", str(tmp_path / "settings.toml")]
    (tmp_path / "settings.toml").write_text(f'[core]\ndatabase = "{url}"\n')
    (tmp_path / "settings.toml").chmod(0o600)
    for command, words in (("backup", "back it up with `pg_dump`"), ("restore", "restore with `pg_restore`")):
        ended = await run(tmp_path, command, "copy.db", *settings)
        assert (ended.code, words in ended.err) == (2, True)
    missing = await run(tmp_path, "restore", *settings)
    assert (missing.code, "There are no tables of responder-bot in the schema" in missing.err) == (2, True)
    async with opened(f"{url}&application_name=by-another-name"):
        in_use = await run(tmp_path, "restore", *settings)
        assert (in_use.code, "is in use; stop every responder-bot" in in_use.err) == (2, True)
    marked = await run(tmp_path, "restore", *settings)
    assert (marked.code, marked.err) == (
        0,
        "Marked the database as restored; the next start makes it live.\n",
    )
    async with opened(url) as database:
        assert await database.read(made_at) is not None


async def output(program: str, *arguments: str, given: bytes = b"") -> bytes:
    process = await asyncio.create_subprocess_exec(
        programs() / program, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    out, problems = await process.communicate(given)
    assert (process.returncode, problems) == (0, b"")
    return out


async def test_what_is_acknowledged_is_durable_whatever_the_role_s_setting_is(url: str) -> None:
    options = psycopg.conninfo.conninfo_to_dict(url)["options"]
    async with opened(url_with(url, options=f"{options} -csynchronous_commit=off")) as database:
        row = await database.read(lambda reads: reads.row("SELECT current_setting('synchronous_commit') AS value"))
        assert row is not None
        assert row["value"] == "on"


# --- searches ---------------------------------------------------------------------------------------------------------


def asleep(search: Search) -> None:
    next(search.rows("SELECT 1 AS n FROM pg_sleep(600)"))


async def test_a_search_that_takes_too_long_is_stopped_and_says_so(url: str) -> None:
    database = PostgresqlDatabase(
        url,
        CORES_SCHEMA,
        MIGRATIONS,
        lambda tx, is_copy: None,
        table=CORES_TABLE,
        opening=Opening(),
        search_limit_s=0.1,
    )
    try:
        searches = await asyncio.gather(*(database.search(asleep) for _ in range(8)), return_exceptions=True)
        assert {str(error) for error in searches} == {
            "The search took over 0.1 s and was stopped; ask for less, or more precisely."
        }
        assert await database.search(lambda search: next(search.rows("SELECT 1 AS n"))["n"]) == 1
    finally:
        await database.close()


async def test_each_search_is_planned_for_what_it_looks_for(url: str) -> None:
    """As many alerts have one tag, and few another."""
    sql = "SELECT alert_id FROM alert_tag WHERE tag = ANY(:tags)"

    def searched(search: Search) -> list[int]:
        return [row["alert_id"] for row in search.rows(sql, {"tags": ["rare"]})]

    def plans(search: Search) -> list[Row]:
        counts = (
            "SELECT generic_plans, custom_plans FROM pg_prepared_statements WHERE statement LIKE 'SELECT alert_id %'"
        )
        return list(search.rows(counts))

    async with opened(url) as database:
        found = []
        for _ in range(60):  # over all threads that search; from the sixth time on a statement is a prepared one
            await database.search(searched)
            found += await database.search(plans)
    assert found
    assert max(row["custom_plans"] for row in found) > 5
    assert {row["generic_plans"] for row in found} == {0}


async def test_a_search_that_nobody_waits_for_is_stopped(url: str) -> None:
    async with opened(url) as database:
        searches = [asyncio.create_task(database.search(asleep)) for _ in range(8)]
        await asyncio.sleep(0)
        for search in searches:
            search.cancel()
        await asyncio.gather(*searches, return_exceptions=True)
        async with asyncio.timeout(8):  # less than the limit of a search
            assert await database.search(lambda search: next(search.rows("SELECT 1 AS n"))["n"]) == 1


async def test_of_large_documents_few_are_in_memory_at_once(url: str) -> None:
    size, count = 1_000_000, 30
    values = {"doc": f'{{"x":"{"x" * size}"}}'}
    sql = (
        "INSERT INTO action (id, kind, object_id, status, created_by, created_at, run_id, doc)"
        " VALUES (:id, 'alert', 7, 'Success', 'a@b.c', 1, '1-5e', :doc)"
    )
    async with opened(url) as database:
        await database.transaction(lambda tx: tx.run_all(sql, ({**values, "id": number} for number in range(count))))

        def read(search: Search) -> int:
            found = actions.ids_of(search, "alert", 7, 0, count)
            return sum(map(len, docs_of(search, database.dialect, "action", found)))

        tracemalloc.start()
        try:
            assert await database.search(read) > size * count
            assert tracemalloc.get_traced_memory()[1] < 6 * size
        finally:
            tracemalloc.stop()


async def test_texts_and_numbers_that_postgresql_has_not(url: str) -> None:
    async with opened(url) as database:
        await database.transaction(lambda tx: objects.insert(tx, 1, "case", '{"title": "a\\u0000b"}', unique_key="x\0"))
        row = await database.read(lambda reads: objects.find_unique(reads, "case", "x\0"))
        assert row is not None
        assert row["doc"] == '{"title": "a\\u0000b"}'  # as it was written
        for query in ({"_like": {"title": "A*B"}}, {"title": "a\ufffdb"}, {"_match": {"keyword": "A\ufffd"}}):
            assert (await search(database, "case", SearchInput(query=query))).total == 1
        with pytest.raises(OverflowError):
            await database.read(lambda reads: objects.find(reads, "case", 2**63))
