"""The route of the event feed (core/docs/http-interface.md#event-feed)."""

import re
from collections.abc import Callable, Sequence

from starlette.responses import Response

from core.api.endpoint import Endpoint, Request, json_response, wait_seconds
from core.common.clock import Clock
from core.common.errors import ResponderBotError
from core.models import EventPage
from core.records.events import Feed

MAX_WAIT_S = 60


def endpoints(feed: Feed, clock: Clock, set_lag: Callable[[float], None]) -> Sequence[Endpoint]:
    """`set_lag` gets, for each page, how many seconds its oldest event had waited for a reader."""

    async def page(request: Request) -> Response:
        after = _after(request.query.get("after"))
        events = await feed.page(after, wait_seconds(request, "wait", MAX_WAIT_S))
        set_lag((clock() - events.events[0].at) / 1000 if events.events else 0.0)
        return json_response(events)

    return [
        Endpoint(
            "GET",
            "/api/event",
            page,
            "Read the changes of objects in order, or wait for the next one",
            response=EventPage,
            errors=(410,),
            query={
                "after": "number of the last event that the reader has seen; absent: from now",
                "wait": f"seconds to wait for an event, at most {MAX_WAIT_S}",
            },
        )
    ]


def _after(text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII):
        raise ResponderBotError("bad_request", "after must be the number of an event, such as the last one read.")
    return int(text)
