"""Routes of the event feed and its documents (core/docs/http-interface.md#event-feed)."""

import re
from collections.abc import Callable, Sequence

from starlette.responses import Response

from core.actions.documents import Documents
from core.api.http.endpoint import MAX_WAIT_S, Endpoint, Request, Routes, json_response, wait_seconds
from core.common.clock import Clock
from core.common.errors import ResponderBotError
from core.models import MAX_IDS, DocumentList, EventPage
from core.records.events import Feed

MAX_GATHER_S = 0.1


def endpoints(feed: Feed, documents: Documents, clock: Clock, set_lag: Callable[[float], None]) -> Sequence[Endpoint]:
    """`set_lag` gets, for each page, how many seconds its oldest event had waited for a reader."""
    route = Routes()

    @route(
        "GET /api/event",
        "Read the changes of objects in order, or wait for the next one",
        response=EventPage,
        errors=(410,),
        query={
            "after": "number of the last event that the reader has seen; absent: from now",
            "database": "the database that the number is from; 410 at once if core has another one",
            "wait": f"seconds to wait for an event, at most {MAX_WAIT_S}",
            "gather": f"seconds for which new alerts alone wait for more, at most {MAX_GATHER_S}",
            "include": "`documents`: also the alerts and cases that the events are about, as they are now",
        },
    )
    async def page(request: Request) -> Response:
        after, with_documents = _after(request.query.get("after")), _included(request, "documents")
        database = request.query.get("database", "")
        wait_s, gather_s = wait_seconds(request), wait_seconds(request, "gather", MAX_GATHER_S)
        events = await request.unless_left(feed.page(after, wait_s, database, gather_s=gather_s))
        set_lag((clock() - events.events[0].at) / 1000 if events.events else 0.0)
        if with_documents:
            return json_response(
                await documents.page(request.caller, events.events[0].seq - 1 if events.events else events.last)
            )
        return json_response(events)

    @route(
        "GET /api/document",
        "Read alerts and cases with all that their cards show, at one moment",
        response=DocumentList,
        query={
            "ids": f"ids of alerts, cases, tasks, logs, artifacts and actions, at most {MAX_IDS}, with commas",
            "include": "`responders`: also the responders for each object, with verdict, reasons and policy",
        },
    )
    async def get_documents(request: Request) -> Response:
        ids = [text.strip() for text in request.query.get("ids", "").split(",")]
        with_responders = _included(request, "responders")
        return json_response(await documents.of_ids(request.caller, ids, with_responders=with_responders))

    return route


def _included(request: Request, name: str) -> bool:
    """Whether `include` asks for the one thing that the route can add. Raises ResponderBotError("bad_request")."""
    text = request.query.get("include", "")
    if text not in ("", name):
        raise ResponderBotError("bad_request", f"include can only be {name} here.")
    return bool(text)


def _after(text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII):
        raise ResponderBotError("bad_request", "after must be the number of an event, such as the last one read.")
    return int(text)
