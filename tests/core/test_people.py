"""Access that people ask for in Slack, users and groups, over HTTP: who may, and what comes of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from core.authorization import COMMAND_LINE, expand
from core.common.clock import DAY_MS
from core.people import MAX_A_DAY, MAX_PENDING
from core.store import people as stored
from tests.core.running import RunningCore, running_core

pytestmark = pytest.mark.asyncio(loop_scope="module")

ADMIN = {"X-On-Behalf-Of": "org-admin"}
ANALYST = {"X-On-Behalf-Of": "analyst"}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def core(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCore]:
    async with running_core(tmp_path_factory.mktemp("core")) as running:
        for profile in ("org-admin", "analyst", "service", "read-only", "source"):
            await running.key(profile)
        yield running


async def bot(
    core: RunningCore, method: str, path: str, body: Any = None, *, by: dict[str, str] | None = None, status: int = 200
) -> Any:
    """A request with the bot's key, on behalf of somebody if `by` says so."""
    answer = await core.send(method, path, body, profile="service", headers=by or {})
    assert answer.status_code == status, answer.text
    return answer.json()


async def ask(core: RunningCore, user: str, name: str = "", *, status: int = 201) -> dict[str, Any]:
    body = {"team": "T1", "slackUser": user, "name": name or user.title()}
    found: dict[str, Any] = await bot(core, "POST", "/api/access", body, status=status)
    return found


async def test_a_request_is_approved_by_an_admin_and_gives_access(core: RunningCore) -> None:
    asked = await ask(core, "U0CARLA", "Carla Müller")
    assert (asked["status"], asked["login"]) == ("pending", "carla.muller@responder-bot.local")
    assert asked["expiresAt"] - asked["createdAt"] == DAY_MS
    assert await ask(core, "U0CARLA", status=200) == asked  # asked twice is asked once
    path = f"/api/access/{asked['id']}"
    refused = await bot(core, "POST", f"{path}/approve", {"profile": "analyst"}, by=ANALYST, status=403)
    assert "only an administrator" in refused["message"]
    await bot(core, "POST", f"{path}/approve", {"profile": "analyst"}, status=403)  # nobody has decided
    for profile in ("org-admin", "service", None, 5):
        await bot(core, "POST", f"{path}/approve", {"profile": profile}, by=ADMIN, status=400)
    approved = await bot(core, "POST", f"{path}/approve", {"profile": "analyst", "clearance": 1}, by=ADMIN)
    assert (approved["status"], approved["profile"]) == ("approved", "analyst")
    assert approved["decidedBy"] == "org-admin@responder-bot.local"
    person = await bot(core, "GET", "/api/user/by-slack/T1/U0CARLA")
    assert (person["login"], person["clearance"]) == ("carla.muller@responder-bot.local", 1)
    back = {"login": person["login"], "slackIds": ["T1:U0CARLA"]}
    assert await bot(core, "GET", f"/api/user/{person['login']}/slack") == back
    assert (await bot(core, "GET", "/api/user/nobody@responder-bot.local/slack"))["slackIds"] == []
    late = await bot(core, "POST", f"{path}/deny", {}, by=ADMIN, status=409)
    assert late["message"] == "This request was approved by org-admin@responder-bot.local already."
    linked = await ask(core, "U0CARLA", status=409)
    assert "is linked to carla.muller@responder-bot.local" in linked["message"]


async def test_a_denied_request_has_its_reason_and_one_can_ask_again(core: RunningCore) -> None:
    asked = await ask(core, "U0DAN")
    denied = await bot(core, "POST", f"/api/access/{asked['id']}/deny", {"message": "who?"}, by=ADMIN)
    assert (denied["status"], denied["message"]) == ("denied", "who?")
    await bot(core, "GET", "/api/user/by-slack/T1/U0DAN", status=404)
    assert (await ask(core, "U0DAN"))["id"] != asked["id"]


async def test_one_person_asks_three_times_a_day(core: RunningCore) -> None:
    for _ in range(MAX_A_DAY):
        asked = await ask(core, "U0FLO")
        await bot(core, "POST", f"/api/access/{asked['id']}/deny", {}, by=ADMIN)
    refused = await ask(core, "U0FLO", status=409)
    assert refused["message"] == "You have asked 3 times today; speak with an administrator, or ask again tomorrow."


async def test_the_feed_tells_of_requests_and_their_ends(core: RunningCore) -> None:
    last = (await bot(core, "GET", "/api/event"))["last"]
    one, other = await ask(core, "U0IVY"), await ask(core, "U0JAN")
    await bot(core, "POST", f"/api/access/{one['id']}/deny", {}, by=ADMIN)
    over = {"id": int(other["id"][1:])}
    await core.core.database.transaction(
        lambda tx: tx.run("UPDATE access_request SET expires_at = 1 WHERE id = :id", over)
    )
    told: list[dict[str, Any]] = []
    while len(told) < 4:  # the expiry is an event of its own
        page = await bot(core, "GET", f"/api/event?after={last}&wait=30&include=documents")
        assert page["documents"] == []
        told, last = [*told, *page["events"]], page["last"]
    assert [(event["type"], event["objectId"], event["rootId"]) for event in told] == [
        ("access_request.created", one["id"], one["id"]),
        ("access_request.created", other["id"], other["id"]),
        ("access_request.ended", one["id"], one["id"]),
        ("access_request.ended", other["id"], other["id"]),
    ]
    (row,) = await core.core.database.fetch_in_background("SELECT status FROM access_request WHERE id = :id", over)
    assert row["status"] == "expired"


async def test_who_was_disabled_cannot_ask_and_nobody_decides_on_their_own_slack_id(core: RunningCore) -> None:
    await core.key("analyst", "kim")
    await core.core.people.link("kim", "T1:U0KIM")
    await core.core.people.disable(COMMAND_LINE, "kim")
    refused = await ask(core, "U0KIM", status=409)
    assert "was ended; only an administrator can give it back" in refused["message"]
    asked = await ask(core, "U0ADA", "Ada")
    await core.core.people.link("org-admin", "T2:U0ADA")  # the same person, linked meanwhile under another team
    own = await bot(core, "POST", f"/api/access/{asked['id']}/approve", {"profile": "analyst"}, by=ADMIN, status=403)
    assert "somebody else must decide" in own["message"]


async def test_a_policy_names_people_and_groups(core: RunningCore) -> None:
    await bot(core, "PUT", "/api/group/oncall", {"members": ["analyst", "org-admin"]})
    names = ["@oncall", "Zoe", "max@example.org", "@nobody"]
    found = await core.core.database.read(lambda reads: expand(reads, names, "responder-bot.local"))
    own = {f"{name}@responder-bot.local" for name in ("analyst", "org-admin", "zoe")}
    assert found == {*own, "max@example.org"}
    await bot(core, "PUT", "/api/group/oncall", {"members": []})


async def test_a_request_expires_after_a_day(core: RunningCore) -> None:
    asked = await ask(core, "U0EVA")
    over = {"id": int(asked["id"][1:])}
    await core.core.database.transaction(
        lambda tx: tx.run("UPDATE access_request SET expires_at = 1 WHERE id = :id", over)
    )
    shown = await bot(core, "GET", f"/api/access/{asked['id']}", by=ADMIN)
    assert shown["status"] == "expired"
    late = await bot(core, "POST", f"/api/access/{asked['id']}/approve", {"profile": "analyst"}, by=ADMIN, status=409)
    assert late["message"] == "This request has expired; the person can ask again."
    assert (await ask(core, "U0EVA"))["id"] != asked["id"]


async def test_nobody_approves_their_own_request(core: RunningCore) -> None:
    asked = await ask(core, "U0SECOND", "org-admin")
    body = {"profile": "analyst", "login": "somebody.else"}
    refused = await bot(core, "POST", f"/api/access/{asked['id']}/approve", body, by=ADMIN, status=403)
    assert refused["message"] == "This request names your own login; somebody else must decide on it."


async def test_a_login_that_is_taken_is_not_given_to_somebody_else(core: RunningCore) -> None:
    asked = await ask(core, "U0IMPOSTOR", "Analyst")
    path = f"/api/access/{asked['id']}/approve"
    taken = await bot(core, "POST", path, {"profile": "analyst"}, by=ADMIN, status=400)
    assert taken["type"] == "CreateError"
    for login in ("a b", "x" * 300, ""):
        answer = await bot(core, "POST", path, {"profile": "analyst", "login": login}, by=ADMIN, status=400)
        assert answer["type"] != "CreateError" or not login
    done = await bot(core, "POST", path, {"profile": "read-only", "login": "impostor"}, by=ADMIN)
    assert done["login"] == "impostor@responder-bot.local"


async def test_simultaneous_decisions_and_requests_are_one(core: RunningCore) -> None:
    body = {"team": "T1", "slackUser": "U0GINA", "name": "Gina"}
    answers = await asyncio.gather(*(core.send("POST", "/api/access", body, profile="service") for _ in range(8)))
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    (number,) = {answer.json()["id"] for answer in answers}
    path = f"/api/access/{number}"
    decided = await asyncio.gather(
        *(
            core.send("POST", f"{path}/approve", {"profile": "analyst"}, profile="service", headers=ADMIN)
            for _ in range(4)
        ),
        *(core.send("POST", f"{path}/deny", {}, profile="service", headers=ADMIN) for _ in range(4)),
    )
    assert sorted(answer.status_code for answer in decided) == [200] + [409] * 7


async def test_only_the_bot_asks_and_only_so_often(core: RunningCore) -> None:
    body = {"team": "T1", "slackUser": "U0HUGO", "name": "Hugo"}
    for profile in ("analyst", "org-admin", "read-only", "source"):
        assert (await core.send("POST", "/api/access", body, profile=profile)).status_code == 403
    assert (await core.send("GET", "/api/access", profile="analyst")).status_code == 403
    for number in range(MAX_PENDING):
        answer = await core.send("POST", "/api/access", {**body, "slackUser": f"U1N{number}"}, profile="service")
        if answer.status_code == 409:
            break
    assert answer.json()["message"] == f"{MAX_PENDING} requests wait for an admin already; ask again later."
    await core.core.database.transaction(lambda tx: stored.prune_requests(tx, 2**53))
    assert await bot(core, "GET", "/api/access", by=ADMIN) == []


async def test_an_admin_sees_people_and_changes_their_access(core: RunningCore) -> None:
    await core.key("analyst", "ida")
    shown = {user["login"]: user for user in await bot(core, "GET", "/api/user", by=ADMIN)}
    assert shown["ida@responder-bot.local"] == {
        **{"login": "ida@responder-bot.local", "profile": "analyst", "clearance": 2, "disabled": False},
        **{"createdAt": shown["ida@responder-bot.local"]["createdAt"], "slackIds": [], "groups": []},
    }
    assert not [user for user in shown.values() if "key" in json.dumps(user).lower()]
    assert (await bot(core, "POST", "/api/user/ida/disable", by=ADMIN))["disabled"] is True
    ida = {"Authorization": f"Bearer {core.keys['ida']}"}
    assert (await core.send("GET", "/api/user/current", headers=ida)).status_code == 401
    assert (await bot(core, "POST", "/api/user/ida/enable", by=ADMIN))["disabled"] is False
    refused = await bot(core, "POST", "/api/user/ida/key", by=ADMIN, status=403)
    assert refused["message"] == "Keys don't pass through Slack; run `responder-bot user key ida` where core runs."
    key = (await core.send("POST", "/api/user/ida/key")).json()["key"]
    assert (await core.send("GET", "/api/user/current", headers=ida)).status_code == 401
    ida = {"Authorization": f"Bearer {key}"}
    assert (await core.send("GET", "/api/user/current", headers=ida)).status_code == 200
    for path in ("/api/user/ida/disable", "/api/user/ida/enable", "/api/user/ida/key"):
        for by in (None, ANALYST):
            await bot(core, "POST", path, by=by, status=403)
    await bot(core, "GET", "/api/user", by=ANALYST, status=403)
    await bot(core, "POST", "/api/user/nobody/disable", by=ADMIN, status=404)
    own = await bot(core, "POST", "/api/user/org-admin/disable", by=ADMIN, status=403)
    assert "your own" in own["message"]


async def test_who_acts_through_the_bot_cannot_take_over_admins_and_programs(core: RunningCore) -> None:
    await core.key("org-admin", "lead")
    for login in ("lead", "service", "source"):
        for verb in ("disable", "enable", "key"):
            refused = await bot(core, "POST", f"/api/user/{login}/{verb}", by=ADMIN, status=403)
            assert ("user key" if verb == "key" else "command line") in refused["message"]
    own = {"Authorization": f"Bearer {core.keys['lead']}"}
    assert (await core.send("POST", "/api/user/source/key", headers=own)).status_code == 200  # with one's own key
    # The bot's key would otherwise be worth an admin's.
    await bot(core, "POST", "/api/user/lead/key", by={"X-On-Behalf-Of": "lead"}, status=403)


async def test_groups_have_members(core: RunningCore) -> None:
    login = "analyst@responder-bot.local"
    group = await bot(core, "PUT", "/api/group/containment", {"members": ["analyst", login, "org-admin"]})
    assert group == {"name": "containment", "members": [login, "org-admin@responder-bot.local"]}
    assert group in await bot(core, "GET", "/api/group")
    assert (
        await core.send("PUT", "/api/group/containment", {"members": [login]}, profile="org-admin")
    ).status_code == 200
    assert (await bot(core, "PUT", "/api/group/containment", {"members": [login]}, by=ADMIN))["members"] == [login]
    await bot(core, "PUT", "/api/group/containment", {"members": []}, by=ANALYST, status=403)
    for members in (["nobody"], ["service"], "analyst", [5], None):
        await bot(core, "PUT", "/api/group/containment", {"members": members}, status=400)
    for name in ("Has%20blank", "x" * 65, "-a"):
        await bot(core, "PUT", f"/api/group/{name}", {"members": []}, status=400)
    shown = {user["login"]: user["groups"] for user in await bot(core, "GET", "/api/user", by=ADMIN)}
    assert shown[login] == ["containment"]
    assert (await bot(core, "PUT", "/api/group/containment", {"members": []}))["members"] == []
    assert await bot(core, "GET", "/api/group") == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(["team", "slackUser", "name", "login", "profile", "clearance", "message", "members"])
PATHS = st.sampled_from(
    ["/api/access", "/api/access/~1/approve", "/api/access/x/deny", "/api/user/x%00/key", "/api/group/a"]
)


@given(path=PATHS, body=st.dictionaries(KEYS, JSON, max_size=5) | JSON, name=st.text(max_size=20))
async def test_any_body_is_answered_without_a_500(core: RunningCore, path: str, body: Any, name: str) -> None:
    if path == "/api/access" and isinstance(body, dict):
        body = {"team": "T1", "slackUser": "U0ANY", "name": name, **body}
    method = "PUT" if "group" in path else "POST"
    answer = await core.send(method, path, body, profile="service", headers={} if path == "/api/access" else ADMIN)
    assert answer.status_code < 500, answer.text
    await core.core.database.transaction(lambda tx: stored.prune_requests(tx, 2**53))
