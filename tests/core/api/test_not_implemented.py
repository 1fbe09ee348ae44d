"""What public clients miss is listed in one place, and the list is true."""

from pathlib import Path

from tests.core.running import running_core

ROOT = Path(__file__).parents[3]
PAGE = "core/docs/http-interface.md"
MISSING = [
    "POST /api/v1/alert/~1/procedure",
    "GET /api/v1/case/~2/timeline",
    "POST /api/v1/case/~2/customEvent",
    "POST /api/v1/case/_merge/~2",
    "POST /api/v1/alert/~1/import/~2",
    "GET /api/v1/task/~3/actionRequired",
    "GET /api/datastorezip/~1",
    "GET /api/alert/artifact/~1",
    "PATCH /api/v1/case/_bulk",
    "PATCH /api/v1/task/_bulk",
    "PATCH /api/v1/observable/_bulk",
    "DELETE /api/v1/alert/~1",
    "DELETE /api/v1/task/~3",
    "DELETE /api/v1/log/~4",
    "DELETE /api/v1/observable/~4",
    "PATCH /api/v1/caseTemplate/~1",
    "GET /api/v1/case/~2/shares",
    "POST /api/v1/case/~2/access",
    "POST /api/v1/case/~2/owner",
    "GET /api/v1/user/~1",
    "POST /api/v1/organisation",
    "POST /api/case/_stats",
]


def test_the_readme_leads_to_the_list() -> None:
    assert f"({PAGE}#not-implemented)" in (ROOT / "README.md").read_text()
    assert "\n## Not implemented\n" in (ROOT / PAGE).read_text()


async def test_what_is_listed_as_missing_is_answered_so(tmp_path: Path) -> None:
    async with running_core(tmp_path) as core:
        alert = {"type": "t", "source": "s", "sourceRef": "r", "title": "t", "description": "d"}
        await core.send("POST", "/api/alert", alert)
        await core.send("POST", "/api/case", {"title": "t", "description": "d"})
        await core.send("POST", "/api/case/~2/task", {"title": "t"})
        for method, path in (line.split() for line in MISSING):
            answer = await core.send(method, path, {} if method in ("POST", "PATCH") else None)
            assert answer.status_code in (404, 405), f"{method} {path} is answered: take it off the list"
