"""What core answers from its first moment on: it lives, and isn't ready until its database is open."""

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from core.api.http.endpoint import Endpoint, Request, SearchTurns, json_response
from core.api.http.errors import error_response
from core.common.database.schema import Opening
from core.common.errors import ResponderBotError
from core.models import ApiModel

LIVE = "/livez"


class Live(ApiModel):
    """The answer of `/livez`, and of `/readyz` when core is ready."""

    status: str = "ok"


async def live(_request: Request) -> Response:
    """A response without looking at anything: the event loop turns."""
    return json_response(Live())


ENDPOINT = Endpoint("GET", LIVE, live, "Answer while core lives", response=Live, is_public=True)


class Starting:
    """The ASGI application of a core that is being opened; all goes to `app` once that is set."""

    def __init__(self, opening: Opening) -> None:
        self.app: ASGIApp | None = None
        self._opening = opening

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.app is not None:
            await self.app(scope, receive, send)
            return
        request = Request(scope, receive, SearchTurns())
        if request.raw_path.rstrip("/") == LIVE:
            response = await live(request)
        else:
            sentence = self._opening.sentence or "Core is starting; try again in a moment."
            response = error_response(ResponderBotError("unavailable", sentence), request.id)
            response.headers["Connection"] = "close"  # the body has not been read
        await response(scope, receive, send)
