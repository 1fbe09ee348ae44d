"""A router with the endpoints of alerts, cases and case templates on a real store, for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from core.actions.documents import Documents
from core.actions.parts import Parts
from core.api import events as events_api
from core.api import records as records_api
from core.api.http.router import Router
from core.common.database import Database
from core.models import Profile
from core.people import People
from core.records.alerts import Alerts
from core.records.cases import Cases, CaseTemplates
from core.records.events import Feed
from core.responders.guards import Guards
from core.responders.registry import Registry
from tests import stores, templates
from tests.clock import SetClock

ALERT: dict[str, Any] = {
    "type": "siem",
    "source": "elastalert",
    "sourceRef": "8257b4",
    "title": "ET MALWARE Win32/RedLine CnC Checkin",
    "description": "10.0.0.5 to 45.9.20.101:2109",
}


@dataclass
class ObjectApi:
    """Requests as an org-admin, or as a user with another profile."""

    http: httpx.AsyncClient
    people: People
    database: Database
    clock: SetClock
    key: str

    async def send(
        self, method: str, path: str, body: Any = None, *, status: int | None = None, key: str = "", **options: Any
    ) -> httpx.Response:
        """A request with a JSON body; with `status`, that is what it must answer."""
        headers = {"Authorization": f"Bearer {key or self.key}"}
        if body is not None:
            options["json"] = body
        answer = await self.http.request(method, path, headers=headers, **options)
        if status is not None:
            assert answer.status_code == status, answer.text
        return answer

    async def post(self, path: str, body: Any = None, status: int | None = 201, **options: Any) -> Any:
        """JSON of the answer to a POST that must answer `status`."""
        return (await self.send("POST", path, body, status=status, **options)).json()

    async def get(self, path: str, status: int | None = 200) -> Any:
        return (await self.send("GET", path, status=status)).json()

    async def patch(self, path: str, body: Any, status: int | None = 200) -> Any:
        return (await self.send("PATCH", path, body, status=status)).json()

    async def user(self, profile: Profile) -> str:
        """The key of a new user with this profile."""
        return await self.people.add(profile, profile)

    async def events(self, after: int = 0) -> list[tuple[str, str, str]]:
        """Type, object and root of each event."""
        page = await self.get(f"/api/event?after={after}&wait=0")
        return [(event["type"], event["objectId"], event["rootId"]) for event in page["events"]]


@asynccontextmanager
async def object_api(folder: Path) -> AsyncIterator[ObjectApi]:
    clock = SetClock()
    await templates.copy_to(stores.location(folder / "core.db"), audited=False)
    async with stores.opened(folder / "core.db") as database:
        people, feed = People(database, "soc.example", clock), await Feed.open(database)
        documents = Documents(Parts(database, Registry([], {}, database, clock), Guards({}, clock), clock), feed)
        router = Router(
            [
                *records_api.alert_endpoints(Alerts(database, clock, "default")),
                *records_api.case_endpoints(Cases(database, clock)),
                *records_api.case_template_endpoints(CaseTemplates(database, clock)),
                *events_api.endpoints(feed, documents, clock, lambda _: None),
            ],
            people,
        )
        key = await people.add("admin", "org-admin")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(router), base_url="http://core") as http:
            yield ObjectApi(http, people, database, clock, key)
