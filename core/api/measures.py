"""Routes of measures: what is in force, with what people can do about it."""

from starlette.responses import Response

from core.actions.measures import MeasureFilter, Measures
from core.api.actions import idempotency_key
from core.api.http.endpoint import Endpoint, Handler, Request, json_list_response, json_response
from core.models import Action, EndInput, Input, MarkEndedInput, Measure

BASE = "/api/connector/engine/measure"


def endpoints(measures: Measures) -> list[Endpoint]:
    """Routes under `/api/connector/engine/measure`."""

    async def list_measures(request: Request) -> Response:
        wanted = MeasureFilter(**{name: request.query.get(name, "") for name in MeasureFilter._fields})
        return json_list_response(await measures.listed(request.caller, wanted))

    async def undo(request: Request) -> Response:
        key, body = idempotency_key(request)
        number = request.path["id"]
        return json_list_response(await measures.undo(request.caller, number, key=key, body=f"{number} {body}"))

    async def extend(request: Request) -> Response:
        return json_response(await measures.extend(request.caller, request.path["id"], request.body.until))

    async def shorten(request: Request) -> Response:
        return json_response(await measures.shorten(request.caller, request.path["id"], request.body.until))

    async def mark_as_ended(request: Request) -> Response:
        found = await measures.mark_as_ended(request.caller, request.path["id"], request.body.reason)
        return json_list_response(found)

    def post(word: str, handler: Handler, summary: str, body: type[Input] | None, response: object) -> Endpoint:
        return Endpoint(
            "POST",
            f"{BASE}/{{id}}/{word}",
            handler,
            summary,
            body=body,
            response=response,
            permission="manageAction",
            purpose=f"{word} a measure",
            errors=(404, 409),
        )

    return [
        Endpoint(
            "GET",
            BASE,
            list_measures,
            "List what is in force",
            response=list[Measure],
            query={
                "target": "what it acts on or may act on, in any spelling",
                "by": "the login of who asked for it",
                "responder": "the responder's name or id",
                "alert": "the id of an alert",
                "case": "the id of a case",
            },
        ),
        post("undo", undo, "Undo a measure", None, list[Action]),
        post("extend", extend, "Have a measure last longer", EndInput, Action),
        post("shorten", shorten, "Have a measure end earlier", EndInput, Action),
        post("end", mark_as_ended, "Mark a measure as ended", MarkEndedInput, list[Action]),
    ]
