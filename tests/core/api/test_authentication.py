"""Keys, acting on behalf of a user, and permissions, for every route."""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from core.api.http.requests import AT_ONCE_S
from core.authorization import COMMAND_LINE
from core.models import Profile
from tests.core.running import RunningCore, made, running_core
from tests.core.running import core as core

pytestmark = pytest.mark.asyncio(loop_scope="module")

ENGINE = "/api/connector/engine"
ALERT = {"type": "siem", "source": "s", "sourceRef": "0", "title": "t", "description": "d"}
PUBLIC = ("/api/docs", "/api/openapi.json", "/health", "/livez", "/metrics", "/readyz")
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


async def test_every_path_and_method_under_api_needs_a_key(core: RunningCore) -> None:
    asked = {(one.method, one.path.replace("{", "").replace("}", "")) for one in core.core.endpoints}
    asked |= {(method, path.replace("/engine/", "/cortex/")) for method, path in asked}
    others = ["/api", "/api/", "/api/alert", "/api/docsx", "/api/nothing", "/api/alert/~1/nothing", "/api/docs/x"]
    asked |= {(method, path) for method in METHODS for path in (*others, "/api/openapi.json/x")}
    for method, path in sorted(asked):
        if path not in PUBLIC:
            answer = await core.http.request(method, path)
            assert answer.status_code == 401, (method, path)
            if method != "HEAD":
                body = answer.json()
                assert (body["type"], body["message"]) == ("AuthenticationError", "Authentication failure")


async def test_public_paths_answer_other_methods_with_405(core: RunningCore) -> None:
    for path in PUBLIC:
        answers = [(await core.http.request(method, path)).status_code for method in ("GET", "HEAD", "POST")]
        assert answers == [200, 200, 405], path


async def test_basic_accepts_a_login_without_domain_in_any_case(core: RunningCore) -> None:
    key = await core.key("analyst")
    statuses = {}
    for login in ("analyst", "ANALYST", "Analyst@Responder-Bot.Local", "read-only", "analyst@example.org", ""):
        basic = base64.b64encode(f"{login}:{key}".encode()).decode()
        answer = await core.http.get("/api/user/current", headers={"Authorization": f"Basic {basic}"})
        statuses[login] = answer.status_code
    assert list(statuses.values()) == [200, 200, 200, 401, 401, 401]


async def test_a_replaced_key_and_a_disabled_user_end_in_every_process(tmp_path: Path) -> None:
    async with running_core(tmp_path) as here, running_core(tmp_path) as there:
        key = await here.key("analyst")
        headers = {"Authorization": f"Bearer {key}"}
        before = await there.http.get("/api/user/current", headers=headers)
        renewed = {"Authorization": f"Bearer {(await here.core.people.new_key(COMMAND_LINE, 'analyst')).key}"}
        after = [(await there.http.get("/api/user/current", headers=sent)).status_code for sent in (headers, renewed)]
        await here.core.people.disable(COMMAND_LINE, "analyst")
        gone = await there.http.get("/api/user/current", headers=renewed)
    assert (before.status_code, after, gone.status_code) == (200, [401, 200], 401)


@pytest.mark.parametrize(
    ("login", "named"),
    [
        ("nobody", "nobody@responder-bot.local"),
        ("service", "service@responder-bot.local"),
        ("other-bot", "other-bot@responder-bot.local"),
        ("", "@responder-bot.local"),
    ],
)
async def test_an_impossible_on_behalf_of_names_the_user(core: RunningCore, login: str, named: str) -> None:
    await core.key("service", "other-bot")
    answer = await core.send("GET", "/api/event", profile="service", headers={"X-On-Behalf-Of": login})
    body = answer.json()
    assert (answer.status_code, body["type"]) == (403, "AuthorizationError")
    assert body["message"] == f"User {named} is unknown"


async def test_on_behalf_of_somebody_disabled_says_who_did_that(core: RunningCore) -> None:
    for name in ("gone", "other"):
        await core.key("analyst", name)
    await core.core.people.disable(replace(COMMAND_LINE, login="mia@example.org"), "gone")
    await core.core.people.disable(COMMAND_LINE, "other")  # on the command line
    for login, named in (
        ("Gone@Responder-Bot.Local", "(gone) was ended by mia@example.org"),
        ("other", "(other) was ended"),
    ):
        answer = await core.send("GET", "/api/event", profile="service", headers={"X-On-Behalf-Of": login})
        said = f"Your access {named}. Ask an administrator if that is wrong."
        assert (answer.status_code, answer.json()["message"]) == (403, said)


async def test_a_wrong_key_is_401_with_any_on_behalf_of(core: RunningCore) -> None:
    headers = {"Authorization": "Bearer wrong", "X-On-Behalf-Of": "analyst"}
    assert (await core.send("GET", "/api/event", profile=None, headers=headers)).status_code == 401


async def test_on_behalf_of_oneself_needs_the_permission_too(core: RunningCore) -> None:
    answer = await core.send("GET", "/api/event", profile="org-admin", headers={"X-On-Behalf-Of": "org-admin"})
    words = "You are not authorized to act for somebody else, you haven't the permission actOnBehalf"
    assert (answer.status_code, answer.json()["message"]) == (403, words)


async def test_on_behalf_of_gives_the_users_permissions_without_manage_user(core: RunningCore) -> None:
    await core.key("org-admin")
    await core.key("read-only")
    lead = await core.send("GET", "/api/user/current", profile="service", headers={"X-On-Behalf-Of": "org-admin"})
    reader = {"X-On-Behalf-Of": "read-only"}
    refused = await core.send("POST", "/api/alert", ALERT, profile="service", headers=reader)
    assert (lead.json()["login"], lead.json()["permissions"]) == (
        "org-admin@responder-bot.local",
        ["manageAction", "manageAlert", "manageCase", "manageCaseTemplate", "manageTask"],
    )
    words = "You are not authorized to create alert, you haven't the permission manageAlert"
    assert (refused.status_code, refused.json()["message"]) == (403, words)


async def test_the_log_and_the_action_keep_the_user_and_whose_key_it_was(core: RunningCore) -> None:
    await core.key("analyst")
    alert = await made(core, "/api/alert", {**ALERT, "sourceRef": "audit"})
    body = {"responderId": "ResponderBot_CloseAsFalsePositive_1_0", "objectType": "alert", "objectId": alert["id"]}
    with capture_logs() as logs:
        for_her = {"X-On-Behalf-Of": "analyst"}
        started = await core.send("POST", f"{ENGINE}/action", body, profile="service", headers=for_her)
    (row,) = await core.core.database.fetch_in_background(
        "SELECT created_by, acted_through FROM action WHERE id = :id", {"id": int(started.json()["id"][1:])}
    )
    both = ("analyst@responder-bot.local", "service@responder-bot.local")
    assert (row["created_by"], row["acted_through"]) == both
    assert [(line["login"], line["acted_through"]) for line in logs if line["event"] == "request_answered"] == [both]


async def test_the_log_names_the_address_behind_a_401(core: RunningCore) -> None:
    with capture_logs() as lines:
        await core.send("GET", "/api/alert/~1", profile=None, headers={"Authorization": "Bearer wrong"})
        await core.send("GET", "/api/alert/none")
    logged = [(line["status"], line["address"], line.get("prefix")) for line in lines]
    assert logged == [(401, "127.0.0.1", None), (404, "127.0.0.1", (await core.key("org-admin"))[:6])]


@pytest.mark.parametrize(
    ("profile", "permissions"),
    [
        ("analyst", ["manageAction", "manageAlert", "manageCase", "manageTask"]),
        (
            "org-admin",
            [
                "manageAction",
                "manageAlert",
                "manageCase",
                "manageCaseTemplate",
                "manageTask",
                "manageUser",
                "readAudit",
            ],
        ),
        ("read-only", []),
        ("service", ["actOnBehalf"]),
    ],
)
async def test_each_profile_has_its_permissions(core: RunningCore, profile: Any, permissions: list[str]) -> None:
    assert (await core.send("GET", "/api/user/current", profile=profile)).json()["permissions"] == permissions


async def test_every_key_reads_everything(core: RunningCore) -> None:
    reads = [endpoint for endpoint in core.core.endpoints if not endpoint.writes and not endpoint.is_public]
    assert len(reads) > 15
    for endpoint in reads:
        path = endpoint.path.replace("{kind}", "alert").replace("{", "").replace("}", "")
        body: Any = {} if endpoint.method == "POST" else None
        answer = await core.send(endpoint.method, path, body, profile="read-only")
        is_about_people = any(part in path for part in ("/by-slack/", "/slack"))
        is_about_people |= path in ("/api/user", "/api/user/who")
        is_for_admins = is_about_people or path in ("/api/host", "/api/audit", "/api/audit/heads")
        assert (answer.status_code == 403) == is_for_admins, (endpoint.method, path, answer.text)


async def test_every_change_is_forbidden_to_read_only(core: RunningCore) -> None:
    # What is unknown is ignored, so that one body suits all.
    anything = {
        **ALERT,
        "name": "n",
        "message": "m",
        "reason": "r",
        "dataType": "ip",
        "data": "a",
        "responderId": "r",
        "objectType": "alert",
        "objectId": "~1",
        "ids": ["~9"],
        "team": "T1",
        "slackUser": "U1",
        "profile": "analyst",
        "members": [],
        "targets": [{"objectType": "alert", "objectId": "~1"}],
        "undoAfterMinutes": 1,
        "alertIds": ["~9"],
        "caseId": "~9",
        "ends": {"~9": 1},
    }
    changes = [endpoint for endpoint in core.core.endpoints if endpoint.permission and endpoint.writes]
    assert len(changes) > 12
    for endpoint in changes:
        body = None if endpoint.method == "DELETE" else anything
        answer = await core.send(endpoint.method, endpoint.path.replace("{id}", "~9"), body, profile="read-only")
        words = f"You are not authorized to {endpoint.purpose}, you haven't the permission {endpoint.permission}"
        assert answer.status_code == 403, (endpoint.path, answer.text)
        assert answer.json()["type"] == "AuthorizationError"
        assert answer.json()["message"].startswith(words)
        if endpoint.path == f"{ENGINE}/action":
            assert answer.json()["message"] == f"{words} (manageTask)"


async def test_the_bot_finds_whom_somebody_may_ask(core: RunningCore) -> None:
    people = core.core.people
    for name, profile, clearance in (("ann", "analyst", 3), ("boss", "org-admin", 1), ("left", "analyst", 3)):
        await people.add(name, profile, clearance=clearance)  # type: ignore[arg-type]  # the names of profiles
    await people.disable(COMMAND_LINE, "left")

    async def who(query: str, profile: Any = "service") -> Any:
        answer = await core.send("GET", f"/api/user/who?{query}", profile=profile)
        return [one["login"].partition("@")[0] for one in answer.json()] if answer.status_code == 200 else answer

    assert await who("clearance=3") == ["ann"]
    assert "ann" not in await who("permission=manageUser")
    assert "boss" in await who("permission=manageUser")
    assert await who("clearance=3&permission=manageUser") == []
    for number in range(8):
        await people.add(f"more{number}", "analyst", clearance=3)
    assert len(await who("clearance=3")) == 5
    assert (await who("clearance=4")).status_code == 400
    assert (await who("permission=x")).status_code == 400
    for profile in ("analyst", "org-admin", "read-only", "source"):
        refused = await who("clearance=3", profile)
        assert (refused.status_code, refused.json()["permission"]) == (403, "actOnBehalf")


async def test_an_enabled_user_is_found_by_slack_team_and_id(core: RunningCore) -> None:
    people = core.core.people
    await people.add("linked", "analyst", slack_id="T1:U1", clearance=3)
    await people.add("homeless", "read-only", slack_id="U2")

    async def found(team: str, user: str, profile: Any = "service") -> tuple[int, Any]:
        answer = await core.send("GET", f"/api/user/by-slack/{team}/{user}", profile=profile)
        return answer.status_code, answer.json()

    linked = await found("T1", "U1")
    missing = [(await found(team, user))[0] for team, user in (("T2", "U1"), ("T1", "u1"), ("T1", "U3"))]
    homeless = await found("T9", "U2")
    forbidden = [(await found("T1", "U1", profile))[0] for profile in ("analyst", "org-admin", "read-only", None)]
    await people.disable(COMMAND_LINE, "linked")
    disabled = await found("T1", "U1")
    permissions = ["manageAction", "manageAlert", "manageCase", "manageTask"]
    assert linked == (
        200,
        {"login": "linked@responder-bot.local", "profile": "analyst", "permissions": permissions, "clearance": 3},
    )
    assert (missing, forbidden) == ([404] * 3, [403, 403, 403, 401])
    assert homeless[1]["login"] == "homeless@responder-bot.local"
    assert (disabled[0], disabled[1]["type"]) == (404, "NotFoundError")


@pytest.mark.parametrize(("profile", "on_behalf", "refused"), [("analyst", False, 401), ("service", True, 403)])
async def test_who_is_disabled_while_a_body_arrives_is_refused(
    core: RunningCore, profile: Profile, on_behalf: bool, refused: int
) -> None:
    login = f"lost-{profile}"
    await core.core.people.add(login, "analyst")
    key = await core.key(profile) if on_behalf else (await core.core.people.new_key(COMMAND_LINE, login)).key

    async def body() -> AsyncIterator[bytes]:
        yield b'{"type":"siem","source":"s","sourceRef":"late",'
        await core.core.people.disable(COMMAND_LINE, login)
        await asyncio.sleep(2 * AT_ONCE_S)
        yield b'"title":"t","description":"d"}'

    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    headers |= {"X-On-Behalf-Of": login} if on_behalf else {}
    answer = await core.http.post("/api/alert", content=body(), headers=headers)
    assert answer.status_code == refused
    assert (await core.send("GET", "/api/alert/siem;s;late")).status_code == 404
