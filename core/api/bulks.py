"""Routes of bulks: start one, see its progress, retry what failed."""

import json
from collections.abc import Sequence
from functools import partial

from starlette.responses import Response

from core.actions.approvals import Choice
from core.actions.bulks import BulkOutcomes, Bulks
from core.api.actions import BASE, STARTS, decision, idempotency_key
from core.api.http.endpoint import Endpoint, Request, Routes, json_response
from core.models import Bulk, BulkAnswer, BulkDecision, BulkInput

BULK = f"{BASE}/_bulk"


def endpoints(bulks: Bulks) -> list[Endpoint]:
    """Routes under `/api/connector/engine/action/_bulk`."""
    route = Routes(BULK)

    @route(
        "POST",
        "Run a responder on several objects",
        body=BulkInput,
        response=BulkAnswer,
        errors=(404, 409, 422, 429),
        **STARTS,
    )
    async def run(request: Request) -> Response:
        key, body = idempotency_key(request)
        return json_response(answer(await bulks.start(request.caller, request.body, key=key, body=body)))

    @route("GET /{id}", "See how far a run on several objects is", response=Bulk, errors=(404,))
    async def get(request: Request) -> Response:
        return json_response(await bulks.get(request.path["id"]))

    @route(
        "POST /{id}/retry",
        "Run again on the objects where a bulk did not succeed or was undone",
        response=BulkAnswer,
        errors=(404, 409, 422, 429),
        **STARTS,
    )
    async def retry(request: Request) -> Response:
        key, _ = idempotency_key(request)
        return json_response(answer(await bulks.retry(request.caller, request.path["id"], key=key)))

    async def decide(choice: Choice, request: Request) -> Response:
        asked: BulkDecision = request.body
        decided = bulks.decide(request.caller, request.path["id"], choice, shown=asked.actions, message=asked.message)
        return json_response(answer(await decided))

    choices: Sequence[tuple[str, Choice]] = (("Approve", "approve"), ("Deny", "deny"))
    for verb, choice in choices:
        summary, options = f"{verb} all runs of a bulk that wait for approval", decision(choice, BulkDecision)
        route(f"POST /{{id}}/{choice}", summary, response=BulkAnswer, **options)(partial(decide, choice))

    return route


def answer(outcomes: BulkOutcomes) -> str:
    """The JSON of a BulkAnswer; that of its actions is sent as it is stored."""
    entries = [
        f'{{"objectId":{json.dumps(object_id)},"status":201,"action":{outcome}}}'
        if isinstance(outcome, str)
        else json.dumps({"objectId": object_id, **outcome.fields()}, ensure_ascii=False)
        for object_id, outcome in outcomes.targets
    ]
    return f'{{"id":"{outcomes.id}","actions":[{",".join(entries)}]}}'
