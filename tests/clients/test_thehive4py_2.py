"""thehive4py 2.1, unmodified, against core (`semantics.md 9`)."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.core.running import running_core

thehive4py = pytest.importorskip("thehive4py", reason="in the group clients only")
TheHiveError = pytest.importorskip("thehive4py.errors").TheHiveError

pytestmark = pytest.mark.clients

ALERT = {"type": "siem", "source": "wazuh", "sourceRef": "1", "title": "Look", "description": "here"}
NAME = "ResponderBot_CloseAsFalsePositive_1_0"


@contextmanager
def client(url: str, key: str) -> Iterator[Any]:
    hive = thehive4py.TheHiveApi(url=url, apikey=key)
    try:
        yield hive
    finally:
        hive.session.close()


async def test_responders_are_listed_and_run(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        alert = (await core.send("POST", "/api/alert", ALERT)).json()
        with client(core.url, await core.key("analyst")) as hive:
            offered = await asyncio.to_thread(hive.cortex.list_responders, "alert", alert["id"])
            responder = next(item for item in offered if item["name"] == NAME)
            assert responder["cortexIds"] == ["local"]
            asked = {"responderId": responder["id"], "objectType": "alert", "objectId": alert["id"]}
            action = await asyncio.to_thread(hive.cortex.create_responder_action, asked)
            assert (action["status"], action["cortexId"], action["objectType"]) == ("Waiting", "local", "Alert")


async def test_a_wrong_key_reaches_the_caller_as_the_client_s_own_error(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        with client(core.url, "wrong") as hive, pytest.raises(TheHiveError, match="Authentication failure"):
            await asyncio.to_thread(hive.cortex.list_responders, "alert", "~1")


async def test_a_missing_right_reaches_the_caller_as_the_client_s_own_error(tmp_path: Path) -> None:
    asked = {"responderId": "x", "objectType": "case_task_log", "objectId": "~1"}
    async with running_core(tmp_path) as core:
        key = await core.key("read-only")
        with (
            client(core.url, key) as hive,
            pytest.raises(TheHiveError, match="You are not authorized to create action"),
        ):
            await asyncio.to_thread(hive.cortex.create_responder_action, asked)
