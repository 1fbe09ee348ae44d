"""The client of core's interface, against a running core."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from core.api.http.errors import error_body
from core.client import UNANSWERED, CoreClient, error_from_response
from core.common.errors import ERRORS, ResponderBotError
from core.models import Alert
from tests.core.running import running_core
from tests.ports import free_port

ALERT = {
    "type": "siem",
    "source": "wazuh",
    "sourceRef": "5710-1",
    "title": "sshd: attempt to log in with a user that does not exist",
    "description": "From 203.0.113.7",
    "artifacts": [{"dataType": "ip", "data": "203.0.113.7"}],
}


async def test_objects_are_created_read_and_searched(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core, CoreClient(core.url, await core.key("org-admin")) as client:
        seen = (await client.events(None, 0)).last
        alert = await client.create_alert(ALERT)
        assert await client.alert(alert.id) == alert
        assert await client.alert("siem;wazuh;5710-1") == alert
        await client.close_alerts([alert.id], "A scanner of ours.")
        closed = await client.alert(alert.id)
        assert (closed.status, closed.summary) == ("Ignored", "A scanner of ours.")
        assert (await client.mark_alert_unread(alert.id)).status == "New"
        found = await client.search(Alert, "/api/alert/_search", {"_field": "source", "_value": "wazuh"}, "0-10")
        assert [item.id for item in found] == [alert.id]
        template = await client.create_case_template({"name": "a/b {c} ü", "titlePrefix": "[SSH]"})
        assert await client.case_template("a/b {c} ü") == template
        case = await client.create_case(
            {"title": "Look", "description": "", "template": template.name} | {"description": "at it"}
        )
        task = await client.add_task(case.id, {"title": "Ask"})
        log = await client.add_log(task.id, {"message": "Asked."})
        assert [one.title for one in await client.open_cases()] == ["[SSH] Look"]
        assert [one.status for one in await client.tasks_of(case.id, 2)] == ["InProgress"]
        above = await client.object_in_context("case_task_log", log.id)
        assert (above.root_id, above.object["case_task"]["case"]["id"]) == (case.id, case.id)
        assert (await client.create_case_from_alert(alert.id)).title == ALERT["title"]
        types = [event.type for event in (await client.events(seen, 0)).events]
        assert types[0] == "alert.created"
        assert (await client.health())["status"] == "ok"


async def test_a_run_from_the_list_of_responders_to_its_end(tmp_path: Path) -> None:
    name = "ResponderBot_CloseAsFalsePositive_1_0"
    async with running_core(tmp_path) as core, CoreClient(core.url, await core.key("analyst")) as client:
        alert = await client.create_alert(ALERT)
        offered = await client.responders("alert", alert.id)
        assert (name, "can_run") in [(item.name, item.verdict) for item in offered]
        run = {"responderId": name, "objectType": "alert", "objectId": alert.id}
        action = await client.run(run, "click-1")
        assert (await client.run(run, "click-1")).id == action.id
        while action.status in ("Waiting", "InProgress"):
            action = await client.action(action.id, wait_s=20)
        assert action.status == "Success", action.report
        assert [item.id for item in await client.actions("alert", alert.id)] == [action.id]
        with pytest.raises(ResponderBotError) as caught:
            await client.cancel(action.id)
        assert caught.value.code == "conflict"


async def test_the_newest_runs_and_a_persons_open_alerts(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core, CoreClient(core.url, await core.key("analyst")) as client:
        me = (await client.current_user()).login
        alert = await client.create_alert(ALERT)
        assert await client.open_alerts(me) == []
        await client.assign_alert(alert.id, me)
        assert [found.id for found in await client.open_alerts(me)] == [alert.id]
        name = "ResponderBot_CloseAsFalsePositive_1_0"
        action = await client.run({"responderId": name, "objectType": "alert", "objectId": alert.id})
        while action.status in ("Waiting", "InProgress"):
            action = await client.action(action.id, wait_s=20)
        assert [run.id for run in await client.newest_actions("ended", by=me, limit=1)] == [action.id]
        assert await client.newest_actions("waiting", limit=500) == []
        assert await client.open_alerts(me) == []
        with pytest.raises(ResponderBotError, match="limit must be a number from 0 to 500"):
            await client.newest_actions("waiting", limit=501)


async def test_as_user_shares_the_connections(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core, CoreClient(core.url, await core.key("service")) as client:
        await core.key("analyst")
        alert = await client.as_user("analyst").create_alert(ALERT)
        assert alert.created_by == "analyst@responder-bot.local"
        with pytest.raises(ResponderBotError) as caught:
            await client.create_alert({**ALERT, "sourceRef": "2"})
        assert caught.value.code == "forbidden"
        await core.core.people.link("analyst", "T1:U1")
        assert (await client.person_by_slack("T1", "U1")).login == "analyst@responder-bot.local"
        with pytest.raises(ResponderBotError) as caught:
            await client.person_by_slack("T1", "U2")
        assert caught.value.code == "not_found"


async def test_errors_have_cores_codes_and_details(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core, CoreClient(core.url, await core.key("org-admin")) as client:
        await client.create_case_template({"name": "Phishing"})
        with pytest.raises(ResponderBotError) as caught:
            await client.create_case_template({"name": "Phishing"})
        assert (caught.value.code, caught.value.message) == (
            "exists",
            'The case template "Phishing" already exists',
        )
        with pytest.raises(ResponderBotError) as caught:
            await client.create_case_template({"severity": 7})
        assert caught.value.code == "invalid_fields"
        assert [entry["name"] for entry in caught.value.fields] == ["name", "severity"]
        for odd in ("", ".", "..", "~1/../../health", "a?b#c", "half of \ud83d"):
            with pytest.raises(ResponderBotError) as caught:
                await client.alert(odd)
            assert caught.value.code == "not_found"


async def test_a_wrong_key_and_a_stopped_core_are_different_errors(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        async with CoreClient(core.url, "wrong") as client:
            with pytest.raises(ResponderBotError) as caught:
                await client.current_user()
            assert caught.value.code == "authentication"
        client = CoreClient(core.url, await core.key("analyst"))
        await client.current_user()
    with pytest.raises(ResponderBotError) as caught:
        await client.current_user()
    await client.close()
    assert caught.value.code == "unavailable"
    assert caught.value.message.startswith(f"Core does not answer at {core.url}; is it running")


async def test_the_same_client_works_again_once_core_is_back(tmp_path: Path) -> None:
    port = {"port": free_port()}
    async with running_core(tmp_path, core=port) as core:
        key = await core.key("analyst")
        client = CoreClient(core.url, key)
        await client.current_user()
    with pytest.raises(ResponderBotError):
        await client.current_user()
    async with running_core(tmp_path, core=port):
        assert (await client.current_user()).login == "analyst@responder-bot.local"
        await client.close()


async def test_a_silent_core_times_out(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        async with CoreClient(f"http://127.0.0.1:{silent.getsockname()[1]}", "k", timeout_s=0.05) as client:
            with pytest.raises(ResponderBotError, match=r"no answer within 0\.05 s"):
                await client.current_user()


async def test_the_connection_of_an_unfinished_response_is_closed() -> None:
    left = asyncio.Event()

    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        await reader.read()
        left.set()
        writer.close()

    server = await asyncio.start_server(half, "127.0.0.1", 0)
    async with server, CoreClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "k", timeout_s=1) as client:
        with pytest.raises(ResponderBotError, match="no answer within 1 s"):
            await client.current_user()
        async with asyncio.timeout(30):
            await left.wait()


async def test_another_server_at_the_url_is_an_error_that_says_so(tmp_path: Path) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nHello")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    async with server, CoreClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "k") as client:
        with pytest.raises(ResponderBotError, match="does not speak core's interface"):
            await client.current_user()


@pytest.mark.parametrize("url", ["nonsense", "http://127.0.0.1:0", "http://"])
async def test_an_invalid_url_is_an_error_that_says_so(url: str) -> None:
    async with CoreClient(url, "k", timeout_s=1) as client:
        with pytest.raises(ResponderBotError) as caught:
            await client.current_user()
    assert caught.value.code == "unavailable"


@pytest.mark.parametrize("code", list(ERRORS))
def test_the_client_recovers_every_error_code(code: Any) -> None:
    raised = ResponderBotError(code, "What happened.", fields=[{"name": "a"}], details={"first": 7})
    status, text = error_body(raised, "r1")
    read = error_from_response(status, text.encode())
    assert (read.code, read.message, read.fields) == (code, "What happened.", ({"name": "a"},))
    unanswered = {UNANSWERED: True} if status == 503 else {}
    assert read.details == {"first": 7, "requestId": "r1", **unanswered}


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b'"x"', b'{"type":1}'])
def test_a_response_without_an_error_body_still_becomes_an_error(content: bytes) -> None:
    assert error_from_response(502, content).code == "unavailable"
    assert error_from_response(418, content).code == "bad_request"


async def test_proxies_in_the_environment_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    async with running_core(tmp_path) as core, CoreClient(core.url, await core.key("analyst")) as client:
        assert (await client.health())["status"] == "ok"


async def test_a_refused_connection_is_named_as_such() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with CoreClient(f"http://127.0.0.1:{port}", "key") as client:
        with pytest.raises(ResponderBotError, match="connection refused") as caught:
            await client.health()
    assert caught.value.code == "unavailable"


async def test_a_connection_closed_without_a_response_is_named_as_such() -> None:
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server, CoreClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "key") as client:
        with pytest.raises(ResponderBotError, match="server disconnected") as caught:
            await client.current_user()
    assert caught.value.details == {UNANSWERED: True}
