"""The event feed on the wire (`semantics.md 8`)."""

import re
from collections.abc import Callable, Sequence

from starlette.responses import Response

from core.api.endpoint import Endpoint, Request, json_response, wait_seconds
from core.common.clock import Clock
from core.common.errors import ResponderBotError
from core.models import EventPage
from core.records.events import Feed

LONGEST_WAIT_S = 60


def endpoints(feed: Feed, clock: Clock, lagged: Callable[[float], None]) -> Sequence[Endpoint]:
    """`lagged` is told how many seconds the oldest event of each answer had waited for its reader."""

    async def page(request: Request) -> Response:
        after = _after(request.query.get("after"))
        found = await feed.page(after, wait_seconds(request, "wait", LONGEST_WAIT_S))
        lagged((clock() - found.events[0].at) / 1000 if found.events else 0.0)
        return json_response(found)

    return [
        Endpoint(
            "GET",
            "/api/event",
            page,
            "Read the changes of objects, in order; wait for the next one",
            response=EventPage,
            errors=(410,),
            query={
                "after": "the last number that the reader has seen; absent: from now",
                "wait": f"how many seconds to wait for an event, at most {LONGEST_WAIT_S}",
            },
        )
    ]


def _after(text: str | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", text, re.ASCII):
        raise ResponderBotError("bad_request", "after is to be the number of an event, such as the last one read.")
    return int(text)
