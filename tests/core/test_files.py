"""Files of artifacts: what comes back of them, and their content."""

import asyncio
import base64
import hashlib
import json
from typing import Any

import pytest

from core.models import Profile
from tests.core.object_api import ALERT
from tests.core.running import RunningCore, sent

CASE = {"title": "A case", "description": "d"}
CONTENT = b"MZ\x00\r\n--\r\n\xff"
ID = hashlib.sha256(CONTENT).hexdigest()
ATTACHMENT = {
    "name": "note.txt",
    "hashes": [ID, hashlib.sha1(CONTENT).hexdigest(), hashlib.md5(CONTENT).hexdigest()],  # noqa: S324 - names of files
    "size": len(CONTENT),
    "contentType": "text/plain",
    "id": ID,
}
TEXT = f"note.txt;text/plain;{base64.b64encode(CONTENT).decode()}"


async def uploaded(core: RunningCore, path: str, body: Any) -> Any:
    parts = [("attachment", ("note.txt", CONTENT, "text/plain")), ("_json", (None, json.dumps(body)))]
    return await sent(core, "POST", path, status=201, files=parts)


async def one_case(core: RunningCore) -> str:
    return str((await sent(core, "POST", "/api/case", CASE, 201))["id"])


async def kept(core: RunningCore) -> int:
    (row,) = await core.core.database.fetch_in_background("SELECT count(*) AS n FROM object WHERE kind = 'file'", {})
    return int(row["n"])


async def test_a_file_in_a_form_comes_back_as_an_attachment_and_whole(core: RunningCore) -> None:
    case = await one_case(core)
    artifact = await uploaded(core, f"/api/case/{case}/artifact", {"dataType": "file", "message": "the mail"})
    assert (artifact["attachment"], "data" in artifact, artifact["message"]) == (ATTACHMENT, False, "the mail")
    assert await sent(core, "GET", f"/api/case/artifact/{artifact['id']}") == artifact
    v1 = f"/api/v1/observable/{artifact['id']}/attachment/{ID}/download"
    for path in (f"/api/datastore/{ID}?name=n%0d%0aX-A:%20b;%22.txt", v1, f"/api/v1/attachment/{ID}/download"):
        answer = await core.send("GET", path, profile="read-only")
        assert (answer.status_code, answer.content) == (200, CONTENT)
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
        assert "x-a" not in answer.headers
    refused: tuple[tuple[Profile | None, int], ...] = ((None, 401), ("source", 403))
    for profile, status in refused:
        await sent(core, "GET", f"/api/datastore/{ID}", status=status, profile=profile)
    for path in ("0" * 64, "~1", "%27"):
        await sent(core, "GET", f"/api/datastore/{path}", status=404)
    assert (await sent(core, "GET", f"{v1}?asZip=true", status=400))["message"].endswith("leave out asZip.")


@pytest.mark.parametrize("sent_as", [{"data": TEXT}, {"attachment": TEXT}, {"data": "", "attachment": [TEXT]}])
async def test_a_file_in_json_is_one_too_and_is_kept_once(core: RunningCore, sent_as: Any) -> None:
    alert = await sent(core, "POST", "/api/alert", {**ALERT, "artifacts": [{"dataType": "file", **sent_as}]}, 201)
    (artifact,) = alert["artifacts"]
    assert (artifact["attachment"], "data" in artifact) == (ATTACHMENT, False)
    case = await sent(core, "POST", f"/api/alert/{alert['id']}/createCase", {}, 201)
    (copied,) = await sent(core, "POST", "/api/case/artifact/_search", {"query": {"attachment.hashes": ID}})
    assert (copied["attachment"], copied["startDate"]) == (ATTACHMENT, artifact["startDate"])
    again = await sent(core, "POST", f"/api/case/{case['id']}/artifact", {"dataType": "file", **sent_as}, 400)
    assert "has this file already" in again["message"]
    assert await kept(core) == 1


async def test_what_is_no_file_stays_what_it_was(core: RunningCore) -> None:
    case = await one_case(core)
    for kind, data in (("file", "invoice.pdf"), ("file", "a;b;c!"), ("file", "a;b;cÄ=="), ("other", TEXT)):
        artifact = await sent(core, "POST", f"/api/case/{case}/artifact", {"dataType": kind, "data": data}, 201)
        assert (artifact["data"], "attachment" in artifact) == (data, False)
    marked = {"dataType": "other", "data": "x;y;AA==", "isFile": True, "attachment": None, "is_file": True}
    assert (await sent(core, "POST", f"/api/case/{case}/artifact", marked, 201))["data"] == "x;y;AA=="
    assert await kept(core) == 0


async def test_a_file_that_is_kept_may_be_named_again(core: RunningCore) -> None:
    alert = await sent(core, "POST", "/api/alert", {**ALERT, "artifacts": [{"dataType": "file", "data": TEXT}]}, 201)
    path = f"/api/alert/{alert['id']}"
    changed = await sent(core, "PATCH", path, {"artifacts": [{**alert["artifacts"][0], "message": "seen"}]})
    (artifact,) = changed["artifacts"]
    assert (artifact["attachment"], artifact["message"]) == (ATTACHMENT, "seen")
    assert artifact["id"] == alert["artifacts"][0]["id"]
    lie = {**ATTACHMENT, "name": "other;name", "size": 1, "hashes": ["x"]}
    case = await one_case(core)
    made = await sent(core, "POST", f"/api/case/{case}/artifact", {"dataType": "file", "attachment": lie}, 201)
    assert made["attachment"] == {**ATTACHMENT, "name": "other_name"}
    unknown: list[Any] = [{**ATTACHMENT, "id": "0" * 64}, {"name": "a", "id": 7}, {"id": "x" * 100_000}, 7, []]
    for wrong in unknown:
        body = {"dataType": "file", "attachment": wrong}
        refused = await core.send("POST", f"/api/case/{case}/artifact", body)
        assert refused.status_code == 400, refused.text
        assert len(refused.content) < 1_000
    both = {"dataType": "file", "data": "a.txt", "attachment": TEXT}
    errors = (await sent(core, "POST", f"/api/case/{case}/artifact", both, 400))["errors"]
    assert [error["name"] for error in errors] == ["attachment"]


async def test_many_alerts_get_one_file_by_one_change(core: RunningCore) -> None:
    ids = [(await sent(core, "POST", "/api/alert", {**ALERT, "sourceRef": str(n)}, 201))["id"] for n in range(8)]
    body = {"ids": ids, "artifacts": [{"dataType": "file", "data": TEXT}]}
    changed = await sent(core, "PATCH", "/api/alert/_bulk", body)
    assert [item["artifacts"][0]["attachment"]["id"] for item in changed] == [ID] * 8
    assert await kept(core) == 1


async def test_the_same_file_at_the_same_time_is_kept_once(core: RunningCore) -> None:
    cases = [await one_case(core) for _ in range(8)]
    await asyncio.gather(*(uploaded(core, f"/api/case/{case}/artifact", {"dataType": "file"}) for case in cases))
    assert await kept(core) == 1


async def test_an_artifact_has_the_fields_of_public_systems(core: RunningCore) -> None:
    artifact = {"dataType": "ip", "data": "192.0.2.7"}
    alert = await sent(core, "POST", "/api/alert", {**ALERT, "artifacts": [{**artifact, "startDate": 5}]}, 201)
    assert {k: alert["artifacts"][0][k] for k in ("startDate", "reports", "stats")} == {
        "startDate": 5,
        "reports": {},
        "stats": {},
    }
    case = await one_case(core)
    made = await sent(core, "POST", f"/api/case/{case}/artifact", artifact, 201)
    assert (made["startDate"], made["reports"], made["stats"]) == (made["createdAt"], {}, {})
    for kind, target in (("case_artifact", made["id"]), ("alert", alert["id"])):
        found = (await sent(core, "GET", f"/api/connector/engine/object/{kind}/{target}"))["object"]
        of_job = found if kind == "case_artifact" else found["artifacts"][0]
        assert {"startDate", "reports", "stats"} <= of_job.keys()
    steps = [{"_name": "getAlert", "idOrName": alert["id"]}, {"_name": "observables"}]
    (shown,) = await sent(core, "POST", "/api/v1/query", {"query": steps})
    assert (shown["startDate"], shown["reports"], "stats" in shown) == (5, {}, False)
