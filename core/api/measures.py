"""Routes of measures: what is in force, with what people can do about it."""

from functools import partial

from starlette.responses import Response

from core.actions.in_force import End
from core.actions.measures import MeasureFilter, Measures
from core.api.actions import idempotency_key
from core.api.bulks import answer
from core.api.http.endpoint import Endpoint, Request, Routes, json_list_response, json_response
from core.models import Action, BulkAnswer, EndInput, EndsInput, MarkEndedInput, Measure

BASE = "/api/connector/engine/measure"


def endpoints(measures: Measures) -> list[Endpoint]:
    """Routes under `/api/connector/engine/measure`."""
    route = Routes(BASE)
    change = partial(route, permission="manageAction", errors=(404, 409))

    @route(
        "GET",
        "List what is in force",
        response=list[Measure],
        query={
            "target": "what it acts on or may act on, or the ids of what it is of or on, with commas",
            "by": "the login of who asked for it",
            "responder": "the responder's name or id",
            "of": "the ids of alerts, cases, runs and bulks, with commas",
            "alert": "the id of an alert",
            "case": "the id of a case",
        },
    )
    async def list_measures(request: Request) -> Response:
        wanted = MeasureFilter(**{name: request.query.get(name, "") for name in MeasureFilter._fields})
        return json_list_response(await measures.listed(request.caller, wanted))

    @change("POST /{id}/undo", "Undo a measure", response=list[Action], purpose="undo a measure")
    async def undo(request: Request) -> Response:
        key, body = idempotency_key(request)
        number = request.path["id"]
        return json_list_response(await measures.undo(request.caller, number, key=key, body=f"{number} {body}"))

    @change(
        "POST /{id}/extend", "Have a measure last longer", body=EndInput, response=Action, purpose="extend a measure"
    )
    async def extend(request: Request) -> Response:
        return json_response(await measures.extend(request.caller, request.path["id"], _end(request)))

    @change("POST /_extend", "Have several last longer", body=EndsInput, response=BulkAnswer, purpose="extend measures")
    async def extend_all(request: Request) -> Response:
        ends: EndsInput = request.body
        return json_response(answer(await measures.extend_all(request.caller, ends.ends, ends.note.strip())))

    @change(
        "POST /{id}/shorten", "Have a measure end earlier", body=EndInput, response=Action, purpose="shorten a measure"
    )
    async def shorten(request: Request) -> Response:
        return json_response(await measures.shorten(request.caller, request.path["id"], _end(request)))

    @change(
        "POST /{id}/end", "Mark a measure as ended", body=MarkEndedInput, response=list[Action], purpose="end a measure"
    )
    async def mark_as_ended(request: Request) -> Response:
        found = await measures.mark_as_ended(request.caller, request.path["id"], request.body.reason)
        return json_list_response(found)

    return route


def _end(request: Request) -> End:
    return End(request.body.until, request.body.note.strip())
