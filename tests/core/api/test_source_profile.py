"""A key with the profile `source` creates alerts, one with `reader` reads block lists; they can do nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from core.common.errors import ResponderBotError
from core.models import PROFILES, Profile
from core.protection.blockable import LISTS
from tests.core.running import RunningCore, running_core

ALERT = {"type": "siem", "source": "s", "title": "t", "description": "d"}
OPEN: Mapping[Profile, set[tuple[str, str]]] = {
    "source": {
        ("POST", "/api/alert"),
        ("POST", "/api/v1/alert"),
        ("POST", "/api/ingest/{name}"),
        ("POST", "/api/ingest/{name}/api/v2/alerts"),
        *(
            ("GET", f"/api/{path}")
            for path in ("user/current", "v1/user/current", "status", "v1/status", "v1/status/public")
        ),
    },
    "reader": {("GET", f"/api/blocklist/{name}.txt") for name in LISTS},
}


async def test_sources_and_analysts_create_alerts(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        made = [
            await core.send("POST", path, {**ALERT, "sourceRef": f"{profile} {path}"}, profile=profile)
            for path in ("/api/alert", "/api/v1/alert")
            for profile in PROFILES
        ]
        twice = await core.send("POST", "/api/alert", {**ALERT, "sourceRef": "source /api/alert"}, profile="source")
        who = (await core.send("GET", "/api/user/current", profile="source")).json()
    allowed = {
        "analyst": 201,
        "org-admin": 201,
        "read-only": 403,
        "auditor": 403,
        "service": 403,
        "source": 201,
        "reader": 403,
    }
    assert [answer.status_code for answer in made] == [allowed[profile] for profile in PROFILES] * 2
    assert made[list(PROFILES).index("source")].json()["createdBy"] == "source@responder-bot.local"
    assert (twice.status_code, twice.json()["type"]) == (400, "CreateError")
    assert (who["profile"], who["permissions"]) == ("source", ["createAlert"])


@pytest.mark.parametrize(("profile", "only"), [("source", "create alerts"), ("reader", "read the block lists")])
async def test_every_other_endpoint_is_forbidden_to_a_program(tmp_path: Path, profile: Profile, only: str) -> None:
    async with running_core(tmp_path) as core:
        made = (await core.send("POST", "/api/alert", {**ALERT, "sourceRef": "1"}, profile="source")).json()
        described = (await core.send("GET", "/api/openapi.json")).json()["paths"]
        routes = [
            (method.upper(), path, operation) for path, item in described.items() for method, operation in item.items()
        ]
        needs_key = [(method, path) for method, path, operation in routes if operation["security"]]
        needs_key += [("POST", "/api/v1/query"), ("GET", "/api/customField"), ("GET", "/api/observable/type")]
        answers = {}
        for method, path in needs_key:
            address = path.replace("{kind}", "alert").replace("{idOrName}", "x")
            for name in ("id", "caseId", "team", "user"):
                address = address.replace(f"{{{name}}}", made["id"])
            if (method, path) not in OPEN[profile]:
                answers[method, path] = await core.send(method, address, body_of(method, path), profile=profile)
        left = (await core.send("GET", f"/api/alert/{made['id']}")).json()
    assert len(answers) > 40
    unlike = {path: answer.text for path, answer in answers.items() if answer.status_code not in (400, 403)}
    assert unlike == {}
    refused = [answer.json()["message"] for answer in answers.values() if answer.status_code == 403]
    sentences = (
        f"a key with the profile {profile} may only {only}",
        "with the profile source, may send to {name}; use that user's key.",
    )
    assert [message for message in refused if not message.endswith(sentences)] == []
    # A wrong body comes before the right: what is left is not looked at any further.
    assert [path for path, answer in answers.items() if answer.status_code == 400 and path[0] == "GET"] == []
    assert (left["status"], left["updatedAt"]) == ("New", None)


def body_of(method: str, path: str) -> Any:
    if method in ("GET", "DELETE"):
        return None
    if path == "/api/v1/query":
        return {"query": [{"_name": "listAlert"}]}
    if path.endswith("/action"):
        return {"responderId": "x", "objectType": "alert", "objectId": "~1"}
    return {}


async def test_a_source_has_no_slack_link_and_nobody_acts_on_its_behalf(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        people = core.core.people
        await core.key("source")
        for link in (people.add("siem", "source", slack_id="T1:U1"), people.link("source", "T1:U1")):
            with pytest.raises(ResponderBotError, match="for programs") as caught:
                await link
            assert caught.value.code == "bad_request"
        assert [user.login for user in await people.all() if user.login.startswith("siem")] == []
        on_behalf = await acting_for(core, "source")
        await core.key("analyst")
        await people.link("analyst", "T1:U2")
        await people.set_profile("analyst", "source")
        with pytest.raises(ResponderBotError, match="No user is linked"):
            await people.person_by_slack("T1", "U2")
        changed = await acting_for(core, "analyst")
    assert [on_behalf, changed] == [403, 403]


async def acting_for(core: RunningCore, name: str) -> int:
    body = {**ALERT, "sourceRef": name}
    answer = await core.send("POST", "/api/alert", body, profile="service", headers={"X-On-Behalf-Of": name})
    return answer.status_code
