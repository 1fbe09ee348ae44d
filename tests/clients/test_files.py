"""Files of public clients: beside the JSON in a form, or as text in it; kept as artifacts, else refused."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.core.running import RunningCore, running_core

pytestmark = pytest.mark.clients

ALERT = {"type": "mail", "source": "imap", "sourceRef": "1", "title": "Phish", "description": "reported"}
CONTENT = b"MZ\x00\r\n--\r\n\xff;\r\r\n"
File = tuple[str, str, bytes, str]
"""The part's name, the file's name, its content and its type."""
MAIL: File = ("attachment0", "mail; März.eml", CONTENT, "message/rfc822; charset=utf-8")


@pytest.fixture
async def core(tmp_path: Path) -> AsyncIterator[RunningCore]:
    async with running_core(tmp_path) as opened:
        yield opened


async def sent(core: RunningCore, path: str, body: Any, files: Sequence[File], status: int = 201) -> Any:
    """A form, as requests and form-data build it; `_json` is a part of its own, with a file name in some clients."""
    parts: list[Any] = [(name, (file, content, kind)) for name, file, content, kind in files]
    parts.append(("_json", ("_json", json.dumps(body))))
    answer = await core.send("POST", path, files=parts)
    assert answer.status_code == status, answer.text
    return answer.json()


async def raw(
    core: RunningCore, path: str, content: bytes, content_type: str = "multipart/form-data; boundary=b"
) -> Any:
    headers = {"Content-Type": content_type, "Authorization": f"Bearer {await core.key('analyst')}"}
    return await core.http.post(path, content=content, headers=headers)


async def is_the_mail(core: RunningCore, artifact: Any) -> bool:
    file = artifact["attachment"]
    content = (await core.send("GET", f"/api/datastore/{file['id']}")).content
    return (file["name"], file["contentType"], content) == ("mail_ März.eml", "message/rfc822", CONTENT)


def shown(artifacts: Sequence[Any]) -> list[tuple[str, str, int]]:
    """Name, type and size of the file of each."""
    return [(f["name"], f["contentType"], f["size"]) for f in (artifact["attachment"] for artifact in artifacts)]


async def test_an_alert_brings_its_files(core: RunningCore) -> None:
    observables = [
        {"dataType": "file", "attachment": "attachment0", "tags": ["eml"]},
        {"dataType": "ip", "data": "192.0.2.7"},
    ]
    made = await sent(core, "/api/v1/alert", {**ALERT, "observables": observables}, [MAIL])
    assert made["observableCount"] == 2
    file, address = (await core.send("GET", f"/api/alert/{made['_id']}")).json()["artifacts"]
    assert await is_the_mail(core, file)
    assert (file["dataType"], file["tags"], address["data"]) == ("file", ["eml"], "192.0.2.7")


@pytest.mark.parametrize("path", ["/api/alert/{alert}/artifact", "/api/v1/case/{case}/observable"])
async def test_a_file_is_added(core: RunningCore, path: str) -> None:
    ids = {
        "alert": (await core.send("POST", "/api/alert", ALERT)).json()["id"],
        "case": (await core.send("POST", "/api/case", {"title": "c", "description": "d"})).json()["id"],
    }
    artifact = {"dataType": "file", "message": "the mail"}
    (added,) = await sent(core, path.format(**ids), artifact, [("attachment", *MAIL[1:])])
    assert await is_the_mail(core, added)
    assert added["message"] == "the mail"
    both = [("attachment", "a", b"1", "text/plain"), ("attachment", "b", b"22", "text/plain")]
    added = await sent(core, path.format(**ids), artifact, both)
    assert shown(added) == [("a", "text/plain", 1), ("b", "text/plain", 2)]


@pytest.mark.parametrize(
    ("named", "name"),
    [
        (b'filename="a \\"b\\".txt"', 'a "b".txt'),
        (b"filename=a.txt", "a.txt"),
        (b"filename=\"x\"; filename*=utf-8''M%C3%A4rz.txt", "März.txt"),
        ('filename="März.txt"'.encode(), "März.txt"),
        (b'filename=""', "file"),
    ],
)
async def test_a_file_keeps_its_name(core: RunningCore, named: bytes, name: str) -> None:
    alert = (await core.send("POST", "/api/alert", ALERT)).json()["id"]
    content = (
        b'--b\r\nContent-Disposition: form-data; name="_json"\r\n\r\n{"dataType":"file"}\r\n'
        b'--b\r\nContent-Disposition: form-data; name="attachment"; ' + named + b"\r\n\r\nx\r\n--b--\r\n"
    )
    answer = await raw(core, f"/api/alert/{alert}/artifact", content)
    assert shown(answer.json()) == [(name, "application/octet-stream", 1)]


async def test_a_file_that_would_be_lost_is_refused_by_name(core: RunningCore) -> None:
    refused = await sent(core, "/api/alert", ALERT, [MAIL], 400)
    assert refused["message"] == "No file is kept here; send the request without attachment0."
    case = (await core.send("POST", "/api/case", {"title": "c", "description": "d"})).json()["id"]
    task = (await core.send("POST", f"/api/case/{case}/task", {"title": "t"})).json()["id"]
    file = ("attachment", "a.txt", b"a", "text/plain")
    for path in (f"/api/case/task/{task}/log", f"/api/v1/task/{task}/log"):
        refused = await sent(core, path, {"message": "seen"}, [file], 400)
        assert refused["message"] == "No file is kept here; send the request without attachment."
        await sent(core, path, {"message": "seen"}, [])
    unnamed = [{"dataType": "file", "attachment": "attachment1"}]
    await sent(core, "/api/v1/alert", {**ALERT, "observables": unnamed}, [MAIL], 400)
    assert (await core.send("GET", "/api/alert")).json() == []


@pytest.mark.parametrize(
    ("content", "content_type"),
    [
        (b"{}", "multipart/form-data"),
        (b"{}", "multipart/form-data; boundary="),
        (b"{}", "multipart/form-data; boundary=b"),
        (b"--b\r\nContent-Disposition: form-data; name=_json\r\n\r\n{}", "multipart/form-data; boundary=b"),
        (b"--b\r\n\r\n{}\r\n--b--\r\n", "multipart/form-data; boundary=b"),
        (
            b"--b\r\nContent-Disposition: ;*0=a;*1*=b;=;\xff\r\n\r\n{}\r\n--b--",
            "multipart/form-data; boundary*0=b; boundary=b",
        ),
        (b"--b" * 1_000, "multipart/form-data; boundary=b"),
        (
            b'--b\r\nContent-Disposition: form-data; name="_json"\r\n\r\n[\r\n--b--\r\n',
            "multipart/form-data; boundary=b",
        ),
        (
            b'--b\r\nContent-Disposition: form-data; name="_json"\r\n\r\n[]\r\n--b--\r\n',
            "multipart/form-data; boundary=b",
        ),
        (b"\r\n--b--\r\n", "Multipart/Form-Data; boundary=b"),
    ],
)
async def test_what_is_no_form_is_refused(core: RunningCore, content: bytes, content_type: str) -> None:
    answer = await raw(core, "/api/alert", content, content_type)
    assert answer.status_code == 400, answer.text


def form(*parts: tuple[str, bytes]) -> bytes:
    """A form of parts: what stands after `form-data; `, and the content."""
    heads = ((f"--b\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode(), value) for head, value in parts)
    return b"".join(head + value + b"\r\n" for head, value in heads) + b"--b--\r\n"


@pytest.mark.parametrize(
    "parts",
    [
        [('name="title"', b"Mail")],
        [('name="_json"', json.dumps(ALERT).encode()), ('name="severity"', b"3")],
        [('name="_json"', json.dumps(ALERT).encode()), ('name="_json"', b'{"severity":3}')],
    ],
)
async def test_a_part_that_would_be_lost_is_refused(core: RunningCore, parts: Sequence[tuple[str, bytes]]) -> None:
    answer, name = await raw(core, "/api/alert", form(*parts)), parts[-1][0].split('"')[1]
    assert (answer.status_code, answer.json()["message"]) == (
        400,
        f"The form's part {name} is not read; put what it says into one _json.",
    )


@pytest.mark.parametrize(("parts", "status"), [(98, 201), (99, 400), (10_000, 400)])
async def test_a_form_has_a_bounded_number_of_parts(core: RunningCore, parts: int, status: int) -> None:
    names = [f"f{number}" for number in range(parts - 1)]
    body = {**ALERT, "artifacts": [{"dataType": "file", "attachment": names}]}
    files = [(f'name="{name}"; filename="{name}"', b"x") for name in names]
    answer = await raw(core, "/api/alert", form(('name="_json"', json.dumps(body).encode()), *files))
    assert answer.status_code == status, answer.text[:200]


@pytest.mark.parametrize("many", [1, 100])
async def test_a_file_is_not_kept_a_hundred_times(core: RunningCore, many: int) -> None:
    artifacts = [{"dataType": f"file{number}", "attachment": "a"} for number in range(many)]
    body = json.dumps({**ALERT, "artifacts": artifacts}).encode()
    answer = await raw(core, "/api/alert", form(('name="_json"', body), ('name="a"; filename="a"', b"x" * 900_000)))
    assert answer.status_code == (201 if many == 1 else 413), answer.text[:200]


async def test_several_artifacts_may_share_all_but_their_data(core: RunningCore) -> None:
    artifact = {**ALERT, "artifacts": [{"dataType": "ip", "data": ["192.0.2.7", "192.0.2.8"], "tlp": 1}]}
    made = (await core.send("POST", "/api/alert", artifact)).json()
    assert [(item["data"], item["tlp"]) for item in made["artifacts"]] == [("192.0.2.7", 1), ("192.0.2.8", 1)]
    names = {"dataType": "domain", "data": ["a.example", "b.example"]}
    added = (await core.send("POST", f"/api/alert/{made['id']}/artifact", names)).json()
    assert [item["data"] for item in added] == names["data"]
    case = (await core.send("POST", "/api/case", {"title": "c", "description": "d"})).json()["id"]
    added = (await core.send("POST", f"/api/case/{case}/artifact", names)).json()
    assert [item["data"] for item in added] == names["data"]
    again = {"dataType": "domain", "data": ["c.example", "b.example"]}
    assert (await core.send("POST", f"/api/case/{case}/artifact", again)).status_code == 400
    found = (await core.send("POST", "/api/case/artifact/_search", {})).json()
    assert [item["data"] for item in found] == names["data"], "all or none"


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ([], {"artifacts[0].data"}),
        ("", {"artifacts[0].data"}),
        (7, {"artifacts[0].data"}),
        (["a", "", 7], {"artifacts[0].data[1]", "artifacts[0].data[2]"}),
        (None, {"artifacts[0].data"}),
    ],
)
async def test_wrong_data_is_named(core: RunningCore, data: Any, named: set[str]) -> None:
    refused = await core.send("POST", "/api/alert", {**ALERT, "artifacts": [{"dataType": "ip", "data": data}]})
    assert {error["name"] for error in refused.json()["errors"]} == named
