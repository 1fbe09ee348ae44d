"""Users and groups over HTTP: who may change them, and what comes of it."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from core.authorization import expand
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


async def test_a_policy_names_people_and_groups(core: RunningCore) -> None:
    await core.send("PUT", "/api/group/oncall", {"members": ["analyst", "org-admin"]})
    names = ["@oncall", "Zoe", "max@example.org", "@nobody"]
    found = await core.core.database.read(lambda reads: expand(reads, names, "responder-bot.local"))
    own = {f"{name}@responder-bot.local" for name in ("analyst", "org-admin", "zoe")}
    assert found == {*own, "max@example.org"}
    await core.send("PUT", "/api/group/oncall", {"members": []})


async def test_an_admin_sees_people_and_changes_their_access(core: RunningCore) -> None:
    await core.key("analyst", "ida")
    for shown in ((await core.send("GET", "/api/user")).json(), await bot(core, "GET", "/api/user")):
        (entry,) = [user for user in shown if user["login"] == "ida@responder-bot.local"]
        assert entry == {
            **{"login": "ida@responder-bot.local", "profile": "analyst", "clearance": 2, "disabled": False},
            **{"createdAt": entry["createdAt"], "slackIds": [], "groups": []},
        }
        assert "key" not in json.dumps(shown).lower()
    assert (await core.send("POST", "/api/user/ida/disable")).json()["disabled"] is True
    ida = {"Authorization": f"Bearer {core.keys['ida']}"}
    assert (await core.send("GET", "/api/user/current", headers=ida)).status_code == 401
    assert (await core.send("POST", "/api/user/ida/enable")).json()["disabled"] is False
    key = (await core.send("POST", "/api/user/ida/key")).json()["key"]
    assert (await core.send("GET", "/api/user/current", headers=ida)).status_code == 401
    ida = {"Authorization": f"Bearer {key}"}
    assert (await core.send("GET", "/api/user/current", headers=ida)).status_code == 200
    assert (await core.send("POST", "/api/user/nobody/disable")).status_code == 404
    own = await core.send("POST", "/api/user/org-admin/disable")
    assert (own.status_code, "your own" in own.json()["message"]) == (403, True)


async def test_nobody_changes_people_through_the_bot(core: RunningCore) -> None:
    await core.key("org-admin", "lead")
    lead = {"X-On-Behalf-Of": "lead"}
    for by in (None, ANALYST, ADMIN, lead):  # the bot's key would otherwise be worth an admin's
        for login in ("analyst", "lead", "service", "source"):
            for verb in ("disable", "enable", "key"):
                await bot(core, "POST", f"/api/user/{login}/{verb}", by=by, status=403)
        await bot(core, "PUT", "/api/group/containment", {"members": []}, by=by, status=403)
    for by in (ANALYST, ADMIN):
        await bot(core, "GET", "/api/user", by=by, status=403)
    assert (await core.send("GET", "/api/user", profile="analyst")).status_code == 403
    assert (await core.send("PUT", "/api/group/oncall", {"members": []}, profile="analyst")).status_code == 403
    own = {"Authorization": f"Bearer {core.keys['lead']}"}
    assert (await core.send("POST", "/api/user/source/key", headers=own)).status_code == 200  # with one's own key


async def test_groups_have_members(core: RunningCore) -> None:
    path, login = "/api/group/containment", "analyst@responder-bot.local"
    group = (await core.send("PUT", path, {"members": ["analyst", login, "org-admin"]})).json()
    assert group == {"name": "containment", "members": [login, "org-admin@responder-bot.local"]}
    assert group in await bot(core, "GET", "/api/group")
    assert (await core.send("PUT", path, {"members": [login]})).json()["members"] == [login]
    for members in (["nobody"], ["service"], "analyst", [5], None):
        assert (await core.send("PUT", path, {"members": members})).status_code == 400
    for name in ("Has%20blank", "x" * 65, "-a"):
        assert (await core.send("PUT", f"/api/group/{name}", {"members": []})).status_code == 400
    shown = {user["login"]: user["groups"] for user in await bot(core, "GET", "/api/user")}
    assert shown[login] == ["containment"]
    assert (await core.send("PUT", path, {"members": []})).json()["members"] == []
    assert await bot(core, "GET", "/api/group") == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(["name", "login", "members"])
PATHS = st.sampled_from(["/api/user/x%00/key", "/api/user/x%00/disable", "/api/group/a"])


@given(path=PATHS, body=st.dictionaries(KEYS, JSON, max_size=5) | JSON)
async def test_any_body_is_answered_without_a_500(core: RunningCore, path: str, body: Any) -> None:
    answer = await core.send("PUT" if "group" in path else "POST", path, body)
    assert answer.status_code < 500, answer.text
