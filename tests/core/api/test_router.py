"""The router: authentication, the order of checks, bodies, limits and errors."""

import asyncio
import base64
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import Response
from structlog.testing import capture_logs

from core.api.http.endpoint import Endpoint, Request, json_response
from core.api.http.errors import error_body
from core.api.http.router import Router
from core.authorization import COMMAND_LINE
from core.common import logs
from core.common.clock import now_ms
from core.common.errors import ERRORS, ResponderBotError
from core.common.listener import bind, http_server
from core.models import CaseTemplateInput
from core.people import People
from tests import stores
from tests.core.running import RunningCore, running_core

TEMPLATE: dict[str, Any] = {"name": "Phishing"}
PATH = "/api/case/template"


async def hostile(core: RunningCore, content: bytes, **headers: str) -> httpx.Response:
    return await core.send("POST", PATH, content=content, headers=headers)


# --- who asks -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/%61pi/user/current", "/api%2Fuser/current", "//api/user/current", "/x/../api/user/current", "/API/event"]
)
async def test_no_spelling_of_a_path_bypasses_authentication(tmp_path: Path, path: str) -> None:
    async with running_core(tmp_path) as core:
        url = httpx.URL(core.url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        answered = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert answered.split()[1] in (b"401", b"404")
    assert b"login" not in answered


async def test_an_endpoint_outside_api_needs_a_key_unless_it_is_public(tmp_path: Path) -> None:
    async def fine(request: Request) -> Response:
        return json_response("{}")

    table = [Endpoint("GET", "/elsewhere", fine, "Be elsewhere")]
    async with serving(tmp_path, table) as (url, key), httpx.AsyncClient(base_url=url) as http:
        assert (await http.get("/elsewhere")).status_code == 401
        assert (await http.get("/elsewhere", headers={"Authorization": f"Bearer {key}"})).status_code == 200


async def test_every_cause_of_a_401_looks_the_same(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        key = await core.key("analyst")
        await core.core.people.add("gone", "analyst")
        gone = (await core.core.people.new_key(COMMAND_LINE, "gone")).key
        await core.core.people.disable(COMMAND_LINE, "gone")
        wrong = [
            "",
            "Bearer",
            "Bearer nonsense",
            f"Bearer {gone}",
            f"Token {key}",
            "Basic !!!",
            "Basic " + base64.b64encode(b"no colon").decode(),
            "Basic " + base64.b64encode(f"read-only:{key}".encode()).decode(),
            "Basic " + base64.b64encode(b"\xff\xfe:\xff").decode(),
        ]
        bodies = set()
        for value in wrong:
            response = await core.send("GET", "/api/event", profile=None, headers={"Authorization": value})
            assert response.status_code == 401, value
            bodies.add((response.json()["type"], response.json()["message"]))
    assert bodies == {("AuthenticationError", "Authentication failure")}


async def test_a_key_works_as_bearer_and_as_basic(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        key = await core.key("analyst")
        basic = base64.b64encode(f"Analyst:{key}".encode()).decode()
        for value in (f"Bearer {key}", f"bearer  {key}", f"Basic {basic}"):
            response = await core.send("GET", "/api/user/current", profile=None, headers={"Authorization": value})
            assert response.json()["login"] == "analyst@responder-bot.local", value


# --- the order of checks --------------------------------------------------------------------------------------------


async def test_of_all_that_is_wrong_the_first_check_is_answered(tmp_path: Path) -> None:
    """As the document orders them; each step mends what the one before was refused for."""
    bot, huge = {"X-On-Behalf-Of": "nobody"}, {"X-Long": "a" * 40_000}
    alert = {"type": "t", "source": "s", "sourceRef": "1", "title": "t", "description": "d"}
    steps: list[tuple[str, str, bytes, dict[str, Any], int]] = [
        ("PUT", "/api/alert/~9", b"{", {"profile": None, "headers": huge}, 401),
        ("PUT", "/api/alert/~9", b"{", {"profile": "service", "headers": bot | huge}, 403),
        ("PUT", "/api/alert/~9", b"{", {"profile": "read-only", "headers": huge}, 413),
        ("PUT", "/api/alert/~9", b"{", {"profile": "read-only"}, 405),
        ("PUT", "/api/alert/~9/x", b"{", {"profile": "read-only"}, 404),
        ("PATCH", "/api/alert/~9", b" " * 5_000, {"profile": "read-only"}, 413),
        ("PATCH", "/api/alert/~9", b"{", {"profile": "read-only"}, 400),
        ("PATCH", "/api/alert/~9", b'{"tlp": 9}', {"profile": "read-only"}, 400),
        ("PATCH", "/api/alert/~9", b'{"status": "Imported"}', {"profile": "read-only"}, 403),
        ("PATCH", "/api/alert/~9", b'{"status": "Imported"}', {"profile": "analyst"}, 404),
        ("PATCH", "/api/alert/~1", b'{"status": "Imported"}', {"profile": "analyst"}, 400),
        ("PATCH", "/api/alert/~1", b'{"status": "Ignored"}', {"profile": "analyst"}, 200),
    ]
    async with running_core(tmp_path, core={"body_limit_bytes": 4096}) as core:
        assert (await core.send("POST", "/api/alert", alert)).json()["id"] == "~1"
        for method, path, content, options, status in steps:
            response = await core.send(method, path, content=content, **options)
            assert response.status_code == status, (method, path, content, response.text)


async def test_a_service_key_without_on_behalf_of_only_reads(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        assert (await core.send("GET", "/api/event", profile="service")).status_code == 200
        assert (await core.send("POST", "/api/alert/_search", {}, profile="service")).status_code == 200
        refused = await core.send("POST", PATH, TEMPLATE, profile="service")
        assert refused.status_code == 403
        assert "X-On-Behalf-Of" in refused.json()["message"]
        run = {"responderId": "x", "objectType": "alert", "objectId": "~1"}
        refused = await core.send("POST", "/api/connector/engine/action", run, profile="service")
        assert (refused.status_code, refused.json()["type"]) == (403, "AuthorizationError")
        assert refused.json()["message"].startswith(
            "You are not authorized to create action, you haven't the permission manageAction (manageTask); "
        )
        await core.key("org-admin")
        made = await core.send("POST", PATH, TEMPLATE, profile="service", headers={"X-On-Behalf-Of": "ORG-admin"})
        assert (made.status_code, made.json()["createdBy"]) == (201, "org-admin@responder-bot.local")


# --- bodies ---------------------------------------------------------------------------------------------------------


NO_OBJECTS = (
    b"",
    b"{",
    b"\xff",
    b"[]",
    b'"text"',
    b"null",
    b'{"name": NaN}',
    b'{"name": Infinity}',
    b'{"name": "\\ud800"}',
    b'{"name": "x", "severity": 1e999}',
    b'{"name": "x", "severity": ' + b"9" * 30 + b"}",
    b'{"name": "x", "severity": ' + b"9" * 9000 + b"}",
    b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b"[" * 100_000,
)


async def test_a_body_that_is_not_a_json_object_is_a_bad_request(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        for content in NO_OBJECTS:
            response = await hostile(core, content)
            assert (response.status_code, response.json()["type"]) == (400, "BadRequest"), content[:20]


async def test_the_body_of_an_upgrade_request_is_read(tmp_path: Path) -> None:
    """Java's HTTP client offers HTTP/2 with each request that it sends without TLS."""
    offer = {
        "Connection": "Upgrade, HTTP2-Settings",
        "Upgrade": "h2c",
        "HTTP2-Settings": "AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA",
    }
    async with running_core(tmp_path) as core:
        for name in "ab":
            response = await core.send("POST", PATH, {"name": name}, headers=offer)
            assert (response.status_code, response.json()["name"]) == (201, name)


async def test_a_missing_field_has_the_message_of_the_interface(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        response = await core.send("POST", PATH, {"severity": None, "unknown": 1})
    found = response.json()
    found.pop("requestId")
    assert found == {
        "type": "AttributeCheckingError",
        "message": "[Attribute name is missing]",
        "errors": [{"name": "name", "type": "MissingAttributeError"}],
    }


async def test_python_names_are_not_accepted_as_fields(tmp_path: Path) -> None:
    """Also inside of lists; what our own code calls them is an unknown field, which is ignored."""
    artifact = {"dataType": "ip", "data": "1.2.3.4"}
    alert = {"type": "t", "source": "s", "sourceRef": "1", "title": "t", "description": "d", "artifacts": [artifact]}
    snake = {("source_ref" if name == "sourceRef" else name): value for name, value in alert.items()}
    wrong = {**alert, "artifacts": [{"data_type": "ip", "data": "1.2.3.4"}]}
    async with running_core(tmp_path) as core:
        for body, missing in ((snake, "sourceRef"), (wrong, "artifacts[0].dataType")):
            response = await core.send("POST", "/api/alert", body)
            assert (response.status_code, response.json()["errors"][0]["name"]) == (400, missing)
        ignored = await core.send("POST", "/api/alert", {**alert, "external_link": "x", "case_template": "x"})
        assert (ignored.status_code, ignored.json()["externalLink"]) == (201, None)


# --- limits ---------------------------------------------------------------------------------------------------------


async def test_a_body_over_the_limit_is_refused_in_any_framing(tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 1024

    async with running_core(tmp_path, core={"body_limit_bytes": 4096}) as core:
        for content in (b" " * 8192, chunks()):
            response = await core.send("POST", PATH, content=content)
            assert (response.status_code, response.json()["type"]) == (413, "TooLargeError")
        name = "x" * 3000
        assert (await core.send("POST", PATH, {"name": name})).status_code == 201


async def test_headers_path_and_query_have_limits(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        for path, headers in (
            ("/api/event?x=" + "a" * 9000, {}),
            ("/api/alert/" + "a" * 3000, {}),
            ("/api/event", {"X-Long": "a" * 40_000}),
            ("/api/event", {"X-Longer": "a" * 100_000}),
        ):
            response = await core.send("GET", path, headers=headers)
            assert (response.status_code, response.json()["type"]) == (413, "TooLargeError")
        many = await core.send("GET", "/api/event?" + "&".join(f"a{number}=1" for number in range(100)))
        assert many.status_code == 400


@pytest.mark.parametrize("sent", [b"rubbish\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n", b"GET / HTTP/9\r\n\r\n"])
async def test_invalid_http_gets_an_error_body(tmp_path: Path, sent: bytes) -> None:
    async with running_core(tmp_path) as core:
        url = httpx.URL(core.url)
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(sent)
        answered = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert answered.startswith(b"HTTP/1.1 400")
    assert b'"type": "BadRequest"' in answered


# --- routers with endpoints that misbehave --------------------------------------------------------------------------


@asynccontextmanager
async def serving(folder: Path, endpoints: Sequence[Endpoint], **options: Any) -> AsyncIterator[tuple[str, str]]:
    """URL and an analyst's key of a router with these endpoints."""
    async with stores.opened(folder / "core.db") as database:
        people = People(database, "responder-bot.local", now_ms)
        key = await people.add("analyst", "analyst")
        async with http_server(Router(endpoints, people, **options), bind("127.0.0.1", 0), grace_s=0) as url:
            yield url, key


async def broken(request: Request) -> Response:
    raise RuntimeError(f"a bug, with {request.headers['authorization']} at hand")


async def test_an_exception_is_a_500_whose_request_id_is_in_the_log(tmp_path: Path) -> None:
    with capture_logs([logs.add_request_id]) as lines:
        table = [Endpoint("GET", "/api/broken", broken, "Break")]
        async with serving(tmp_path, table) as (url, key), httpx.AsyncClient(base_url=url) as http:
            headers = {"Authorization": f"Bearer {key}", "X-Request-Id": "from-the-client.1"}
            response = await http.get("/api/broken", headers=headers)
    assert response.status_code == 500
    found = response.json()
    assert (found["type"], found["requestId"]) == ("InternalError", "from-the-client.1")
    assert response.headers["x-request-id"] == "from-the-client.1"
    assert "from-the-client.1" in found["message"]
    assert "bug" not in response.text
    failed = [entry for entry in lines if entry["event"] == "request_failed"]
    assert [entry["request_id"] for entry in failed] == ["from-the-client.1"]
    assert [entry["status"] for entry in lines if entry["event"] == "request_answered"] == [500]


async def test_an_unsafe_request_id_is_replaced(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        ids = set()
        for request_id in ("a b", "x" * 65, '"}{'):
            response = await core.send("GET", "/api/none", headers={"X-Request-Id": request_id})
            ids.add(response.json()["requestId"])
            assert response.headers["x-request-id"] == response.json()["requestId"]
    assert len(ids) == 3
    assert all(len(found) == 16 for found in ids)


async def test_a_client_that_never_finishes_its_body_gets_a_400_and_is_disconnected(tmp_path: Path) -> None:
    async def fine(request: Request) -> Response:
        return json_response("{}")

    table = [Endpoint("POST", "/api/slow", fine, "Take a body", body=CaseTemplateInput)]
    async with serving(tmp_path, table, body_timeout_s=0.05) as (url, key):
        parsed = httpx.URL(url)
        reader, writer = await asyncio.open_connection(parsed.host, parsed.port)
        head = f"POST /api/slow HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: 100\r\n\r\n{{"
        writer.write(head.encode())
        answered = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert answered.startswith(b"HTTP/1.1 400")
    assert b"connection: close" in answered.lower()
    assert b"did not arrive within" in answered


async def test_waiting_requests_get_a_503_when_core_stops(tmp_path: Path) -> None:
    waiting = asyncio.Event()

    async def forever(request: Request) -> Response:
        waiting.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with httpx.AsyncClient() as http:
        async with serving(tmp_path, [Endpoint("GET", "/api/wait", forever, "Wait")]) as (url, key):
            request = http.get(f"{url}/api/wait", headers={"Authorization": f"Bearer {key}"})
            pending = asyncio.create_task(request)
            await waiting.wait()
        response = await pending
    assert (response.status_code, response.json()["type"]) == (503, "UnavailableError")


async def test_no_secret_reaches_the_log(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with running_core(tmp_path) as core:
            key = await core.key("org-admin")
            basic = base64.b64encode(f"org-admin:{key}".encode()).decode()
            await core.send("POST", PATH, TEMPLATE)
            await core.send("POST", PATH, TEMPLATE, headers={"Authorization": f"Basic {basic}"})
            await core.send("GET", "/api/event", headers={"Authorization": f"Bearer {key}x"})
    text = repr(logs)
    assert "request_answered" in text
    assert key not in text
    assert basic not in text


def test_every_error_code_has_a_status_and_a_type() -> None:
    from typing import get_args

    from core.common.errors import Code

    assert set(ERRORS) == set(get_args(Code))
    status, text = error_body(ResponderBotError("log_not_found", "Log not found"), "r1")
    assert (status, text) == (404, '{"type":"AuthenticationError","message":"Log not found","requestId":"r1"}')


def test_a_port_in_use_is_an_error_that_says_so(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ResponderBotError, match="choose another with"):
            bind("127.0.0.1", taken.getsockname()[1])


async def test_who_waited_for_events_and_left_is_no_503_at_the_stop(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with running_core(tmp_path) as here:
            headers = {"Authorization": f"Bearer {await here.key('service', 'bot')}"}
            async with httpx.AsyncClient(base_url=here.url, headers=headers, timeout=0.5) as client:
                with pytest.raises(httpx.ReadTimeout):
                    await client.get("/api/event", params={"wait": 60})
    assert [line["status"] for line in logs if line.get("route") == "/api/event"] == []
