"""The peer of core, as a competent developer would write it: FastAPI, SQLAlchemy's async ORM, aiosqlite or asyncpg.

Tuned: an index for each query, one query for a list, no access log, the report stored as text. On SQLite: WAL, and a
lock around writes, so that none fails because the database is locked. On PostgreSQL: a connection for each request.
"""

import asyncio
import hashlib
import json
import socket
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any, ClassVar

import uvicorn
from fastapi import Depends, FastAPI, Header, HTTPException
from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from sqlalchemy import BigInteger, ForeignKey, Index, Integer, event, select, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.bench.dataset import ANALYST, KEYS, action, alert
from tests.bench.processes import send_line


class Base(DeclarativeBase):
    type_annotation_map: ClassVar = {int: BigInteger().with_variant(Integer, "sqlite")}


class User(Base):
    __tablename__ = "users"
    login: Mapped[str] = mapped_column(primary_key=True)
    key_hash: Mapped[str] = mapped_column(unique=True)
    permissions: Mapped[str]


class Alert(Base):
    __tablename__ = "alerts"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    description: Mapped[str]
    tlp: Mapped[int]
    pap: Mapped[int]


class Action(Base):
    __tablename__ = "actions"
    id: Mapped[int] = mapped_column(primary_key=True)
    responder_id: Mapped[str]
    responder_name: Mapped[str]
    responder_definition: Mapped[str]
    engine_id: Mapped[str]
    engine_job_id: Mapped[str]
    object_type: Mapped[str]
    object_id: Mapped[int] = mapped_column(ForeignKey("alerts.id"))
    status: Mapped[str]
    start_date: Mapped[int]
    end_date: Mapped[int | None]
    operations: Mapped[str]
    report: Mapped[str]
    created_by: Mapped[str]
    created_at: Mapped[int]

    __table_args__ = (Index("actions_of_object", "object_id", "id"),)


class Event(Base):
    __tablename__ = "events"
    seq: Mapped[int] = mapped_column(primary_key=True)
    at: Mapped[int]
    type: Mapped[str]
    object_id: Mapped[int]
    user: Mapped[str]


class ActionOut(BaseModel):
    model_config = ConfigDict(from_attributes=True, alias_generator=to_camel, populate_by_name=True)

    id: int
    responder_id: str
    responder_name: str
    responder_definition: str
    engine_id: str
    engine_job_id: str
    object_type: str
    object_id: int
    status: str
    start_date: int
    end_date: int | None = None
    operations: str
    report: str
    created_by: str
    created_at: int


class RunIn(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    responder_id: str
    object_type: str
    object_id: str
    parameters: dict[str, Any] = Field(default_factory=dict)


def engine_of(path: Path, url: str = "") -> AsyncEngine:
    """For the PostgreSQL at `url` if one is given, otherwise for that file."""
    if url:
        return create_async_engine(url.replace("postgresql:", "postgresql+asyncpg:").partition("?")[0], pool_size=32)
    engine = create_async_engine(f"sqlite+aiosqlite:///{path}", pool_size=10, connect_args={"timeout": 30})

    @event.listens_for(engine.sync_engine, "connect")
    def pragmas(connection: Any, _: Any) -> None:
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.execute("PRAGMA foreign_keys = ON")
        cursor.close()

    return engine


def application(path: Path, ends: bool, program: str = "", url: str = "") -> FastAPI:
    """With `ends`, its engine ends each run at once; with `program`, it starts this, a process for each run."""
    engine = engine_of(path, url)
    sessions = async_sessionmaker(engine, expire_on_commit=False)
    writing = nullcontext() if url else asyncio.Lock()
    following: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with engine.begin() as connection:
            await connection.run_sync(Base.metadata.create_all)
        yield
        await engine.dispose()

    app = FastAPI(lifespan=lifespan)

    async def session() -> AsyncIterator[AsyncSession]:
        async with sessions() as opened:
            yield opened

    Session = Annotated[AsyncSession, Depends(session)]

    async def caller(session: Session, authorization: Annotated[str, Header()] = "") -> User:
        key_hash = hashlib.sha256(authorization.removeprefix("Bearer ").encode()).hexdigest()
        user = await session.scalar(select(User).where(User.key_hash == key_hash))
        if user is None:
            raise HTTPException(401, "Authentication failure")
        return user

    Caller = Annotated[User, Depends(caller)]

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.get("/api/connector/engine/action/{kind}/{object_id}", response_model=list[ActionOut])
    async def listing(kind: str, object_id: str, session: Session, user: Caller) -> Any:
        number = int(object_id.removeprefix("~"))
        if await session.get(Alert, number) is None:
            raise HTTPException(404, "Alert not found")
        found = await session.scalars(select(Action).where(Action.object_id == number).order_by(Action.id.desc()))
        return found.all()

    @app.get("/api/connector/engine/action/{number}", response_model=ActionOut)
    async def single(number: int, session: Session, user: Caller) -> Any:
        found = await session.get(Action, number)
        if found is None:
            raise HTTPException(404, "Action not found")
        return found

    @app.post("/api/connector/engine/action", response_model=ActionOut, status_code=201)
    async def run(body: RunIn, session: Session, user: Caller) -> Any:
        if "manageAction" not in user.permissions:
            raise HTTPException(403, "You are not authorized to create action")
        target = await session.get(Alert, int(body.object_id.removeprefix("~")))
        if target is None:
            raise HTTPException(404, "Alert not found")
        now = time.time_ns() // 1_000_000
        created = Action(
            responder_id=body.responder_id,
            responder_name="Idle_1_0",
            responder_definition="Idle_1_0",
            engine_id="local",
            engine_job_id="",
            object_type="Alert",
            object_id=target.id,
            status="Waiting",
            start_date=now,
            end_date=None,
            operations="[]",
            report="{}",
            created_by=user.login,
            created_at=now,
        )
        if not url:
            await session.commit()  # end the read transaction, which could not be upgraded: "database is locked"
        async with writing:
            session.add(created)
            await session.flush()
            session.add(Event(at=now, type="action.created", object_id=created.id, user=user.login))
            await session.commit()
        task = asyncio.create_task(follow(created.id, target))
        following.add(task)
        task.add_done_callback(following.discard)
        return created

    async def follow(number: int, target: Alert) -> None:
        """Run the engine, and store the end."""
        report = '{"success":true}'
        if program:
            report = await execute(program, path.parent / "jobs" / str(number), target)
        elif not ends:
            await asyncio.get_running_loop().create_future()
        async with sessions() as session, writing:
            ended = await session.get_one(Action, number)
            ended.status, ended.end_date, ended.report = "Success", time.time_ns() // 1_000_000, report
            session.add(Event(at=ended.end_date, type="action.ended", object_id=number, user=ended.created_by))
            await session.commit()

    return app


async def execute(program: str, job: Path, target: Alert) -> str:
    """Start the program with its job folder, wait for its end, and return its report. Raises if it failed."""
    (job / "input").mkdir(parents=True)
    data = {"_id": f"~{target.id}", "title": target.title, "description": target.description}
    input_json = {"data": data, "dataType": "thehive:alert", "tlp": target.tlp, "pap": target.pap}
    (job / "input" / "input.json").write_text(json.dumps(input_json))
    process = await asyncio.create_subprocess_exec(sys.executable, program, str(job))
    if await process.wait():
        raise RuntimeError(f"{program} failed")
    return (job / "output" / "output.json").read_text()


async def fill(path: Path, actions: int, titles: Sequence[str], url: str = "") -> None:
    """Create the users, one alert and its actions, as in core's database; with `titles`, an alert for each."""
    engine = engine_of(path, url)
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    sample = alert(1)
    async with async_sessionmaker(engine)() as session:
        for number, key in enumerate(KEYS):
            key_hash = hashlib.sha256(key.encode()).hexdigest()
            session.add(User(login=f"{number or ''}{ANALYST}", key_hash=key_hash, permissions="manageAction"))
        for number, title in enumerate(titles or [sample.title], 1):
            session.add(Alert(id=number, title=title, description=sample.description, tlp=2, pap=2))
        await session.flush()
        for number in range(2, actions + 2):
            fields = action(number, 1).model_dump(include={column.name for column in Action.__table__.columns})
            session.add(Action(**{**fields, "id": number, "object_id": 1}))
        if url:  # its numbers were given
            await session.flush()
            await session.execute(text(f"SELECT setval(pg_get_serial_sequence('actions', 'id'), {actions + 1})"))
        await session.commit()
    await engine.dispose()


def main(given: dict[str, Any]) -> None:
    path = Path(given["folder"]) / "peer.db"
    url = str(given.get("database", ""))
    if not path.exists():
        asyncio.run(fill(path, int(given.get("actions", 10)), given.get("titles", ()), url))
    sock = socket.create_server(("127.0.0.1", 0))
    send_line({"url": f"http://127.0.0.1:{sock.getsockname()[1]}"})
    app = application(path, bool(given.get("ends")), str(given.get("program", "")), url)
    config = uvicorn.Config(app, access_log=False, log_level="warning")
    uvicorn.Server(config).run([sock])


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
