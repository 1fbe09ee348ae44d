"""A damaged database is told as such: a sentence at start, 503 while it is in use, and `/health` says so."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests import programs
from tests.core.core_process import ALERT
from tests.core.running import running_core

pytestmark = pytest.mark.sqlite  # of the file and its text


def damage(path: Path, sql: str, text: bytes) -> None:
    """Overwrite a text with these bytes, behind core's back."""
    with closing(sqlite3.connect(path)) as other:
        other.execute(sql, (text,))
        other.commit()


@pytest.mark.parametrize("text", [b'{"title": "secret \xff words"}', b'{"title": "secret words'])
async def test_a_record_that_cannot_be_read_is_503_and_the_others_are_fine(tmp_path: Path, text: bytes) -> None:
    async with running_core(tmp_path) as core:
        one, other = [
            (await core.send("POST", "/api/alert", {**ALERT, "sourceRef": ref})).json()["id"] for ref in ("1", "2")
        ]
        damage(
            tmp_path / "core.db",
            "UPDATE object SET doc = CAST(? AS TEXT) WHERE kind = 'alert' AND unique_key LIKE '%1%'",
            text,
        )
        for answer in (
            await core.send("PATCH", f"/api/alert/{one}", {"title": "new"}),
            await core.send(
                "POST",
                "/api/connector/engine/action",
                {
                    "responderId": "ResponderBot_CloseAsFalsePositive_1_0",
                    "objectType": "alert",
                    "objectId": one,
                },
            ),
        ):
            assert answer.status_code == 503
            assert "restore a backup" in answer.json()["message"].lower()
            assert "secret" not in answer.text
        assert (await core.send("PATCH", f"/api/alert/{other}", {"title": "new"})).status_code == 200
        health = await core.send("GET", "/health", profile=None)
    if b"\xff" in text:
        assert health.json()["status"] == "degraded"
        assert "a text in it is not valid UTF-8" in health.json()["parts"][0]["message"]


@pytest.mark.parametrize("text", [b"{\xff", b"{", b"[]", b'{"responders": 1}'])
async def test_a_damaged_catalogue_is_replaced(tmp_path: Path, text: bytes) -> None:
    async with running_core(tmp_path) as core:
        before = [offer.name for offer in core.core.registry.all()]
    damage(tmp_path / "core.db", "UPDATE host_catalogue SET doc = CAST(? AS TEXT)", text)
    async with running_core(tmp_path) as core:
        assert [offer.name for offer in core.core.registry.all()] == before


@pytest.mark.parametrize("part", ["text", "page"])
async def test_a_database_that_cannot_be_read_at_start_is_a_sentence(tmp_path: Path, part: str) -> None:
    (tmp_path / "settings.toml").write_text("[core]\nport = 0\ndatabase = 'core.db'\n")
    async with running_core(tmp_path) as core:
        await core.send("POST", "/api/alert", ALERT)
    if part == "page":
        with (tmp_path / "core.db").open("r+b") as file:
            file.seek(16_384)
            file.write(b"\xff" * ((tmp_path / "core.db").stat().st_size - 16_384))
    else:
        damage(tmp_path / "core.db", "UPDATE _sqlite_migrations SET name = CAST(? AS TEXT) WHERE id = 1", b"\xffab")
    process = await programs.start(
        *("core.cli", "core", "--config", str(tmp_path / "settings.toml")),
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    assert process.returncode == 2
    assert errors.decode().count("\n") == 1
    assert "core.db can't be opened" in errors.decode()
