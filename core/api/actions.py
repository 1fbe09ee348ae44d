"""Routes of actions: run a responder, follow its runs, cancel, approve, deny; of bulks, and of what is in force."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from starlette.responses import Response

from core.actions.approvals import Choice
from core.actions.bulks import BulkOutcomes, Bulks
from core.actions.in_force import End
from core.actions.measures import MeasureFilter, Measures, Undos
from core.actions.runs import StartedRun
from core.actions.service import LIST_LIMIT, Actions
from core.api.http.endpoint import (
    MAX_WAIT_S,
    Endpoint,
    Request,
    Routes,
    int_param,
    json_list_response,
    json_response,
    partial_list_response,
    search_endpoint,
    wait_seconds,
)
from core.common.errors import ResponderBotError
from core.models import (
    MAX_IDS,
    Action,
    Bulk,
    BulkAnswer,
    BulkDecision,
    BulkInput,
    Decision,
    EndInput,
    EndsInput,
    MarkEndedInput,
    Measure,
    RunInput,
    UndoInput,
    UndoTimeInput,
)
from core.records.search import EVERYTHING, parse_range
from core.responders import target as targets

BASE = "/api/connector/engine/action"
BULK = f"{BASE}/_bulk"
MEASURE = "/api/connector/engine/measure"
_RANGE = {
    "range": f"`all`, or `from-to` such as 0-100, newest first. An answer has at most {LIST_LIMIT}; X-Total and"
    " Link say what is left. Long lists shorten reports"
}
KEY_LIMIT = 255
KEY_HEADER = {"Idempotency-Key": "a repeated key within 24 hours answers the same with 200 and starts nothing"}
MAX_NEWEST = 500
MAX_MILLIS = 2**53


def idempotency_key(request: Request) -> tuple[str, str]:
    """The key of a request, and the body that a repeat must have; both empty without a key.

    Raises ResponderBotError("bad_request") for a key that is too long.
    """
    key = request.headers.get("idempotency-key", "")
    if len(key) > KEY_LIMIT:
        raise ResponderBotError("bad_request", f"An Idempotency-Key has at most {KEY_LIMIT} characters.")
    return key, json.dumps(request.raw, sort_keys=True) if key else ""


def _decision(word: str, body: type[Decision] = Decision) -> Mapping[str, Any]:
    """What routes of a decision on what waits for approval have in common; `word` is the verb."""
    return {"body": body, "permission": "manageAction", "purpose": f"{word} an action", "errors": (404, 409, 429)}


_CHANGES: Mapping[str, Any] = {"response": Action, "permission": "manageAction", "errors": (404, 409)}
_STARTS: Mapping[str, Any] = {
    "permission": "manageAction",
    "purpose": "create action",
    "permission_label": "manageAction (manageTask)",
    "request_headers": KEY_HEADER,
}
"""What routes that start runs have in common."""


def action_endpoints(actions: Actions, undos: Undos) -> list[Endpoint]:
    """Routes under `/api/connector/engine/action`."""
    route = Routes(BASE)

    async def answer(started: StartedRun) -> Response:
        """With 200 for what an earlier request with the same key started."""
        if not started.new:
            return json_response(started.action)
        return json_response(await actions.with_job_id(started.action), status=201)

    @route(
        "POST",
        "Run a responder",
        body=RunInput,
        response=Action,
        status=201,
        errors=(404, 409, 422, 429),
        **_STARTS,
    )
    async def run(request: Request) -> Response:
        key, body = idempotency_key(request)
        return await answer(await actions.start(request.caller, request.body, key=key, body=body))

    @route(
        "GET /responder/{kind}/{id}",
        "List the actions run on an object",
        response=list[Action],
        errors=(404,),
        query=_RANGE,
    )
    @route("GET /{kind}/{id}", "List the actions run on an object", response=list[Action], errors=(404,), query=_RANGE)
    async def list_actions(request: Request) -> Response:
        kind, object_id = targets.parse_kind(request.path["kind"]), request.path["id"]
        window = parse_range(request.query.get("range", "all"))
        text = await actions.list_json(kind, object_id) if window == EVERYTHING else None
        if text is not None:
            return json_response(text)
        docs, total = await request.run_search(actions.list_range(kind, object_id, window))
        return partial_list_response(docs, total, window)

    @route(
        "GET /_newest",
        "List the newest actions in a state",
        response=list[Action],
        query={
            "state": "`open`, `active` or `ended`, of one person; `waiting` for approval; `failed`, or expired",
            "by": "the login of who asked for them",
            "since": "in ms; `failed` lists only those that ended since then",
            "limit": f"how many, at most {MAX_NEWEST}; default: 50",
        },
    )
    async def newest(request: Request) -> Response:
        query = request.query
        since, limit = int_param(request, "since", 0, MAX_MILLIS), int_param(request, "limit", 50, MAX_NEWEST)
        return json_list_response(await actions.newest(query.get("state", ""), query.get("by", ""), since, limit))

    @route(
        "GET /_decided",
        "List the last runs on targets that somebody denied, or undid",
        response=list[Action],
        errors=(404,),
        query={
            "responder": "its name",
            "ids": f"ids of the alerts and other objects that have the targets, at most {MAX_IDS}, with commas",
        },
    )
    async def decided_before(request: Request) -> Response:
        ids = [text.strip() for text in request.query.get("ids", "").split(",")]
        found = await actions.decided(request.caller, request.query.get("responder", ""), ids)
        return json_list_response([one.to_json() for one in found])

    @route(
        "GET /{id}",
        "Get an action with its whole report",
        response=Action,
        errors=(404,),
        query={"wait": f"seconds to wait for its next change, at most {MAX_WAIT_S}"},
    )
    async def get(request: Request) -> Response:
        wait_s = wait_seconds(request)
        return json_response(await request.unless_left(actions.wait(request.path["id"], wait_s)))

    @route("DELETE /{id}", "Cancel an action", purpose="cancel action", **_CHANGES)
    @route("POST /{id}/cancel", "Cancel an action, and say why", response=Action, **_decision("cancel"))
    async def cancel(request: Request) -> Response:
        await actions.cancel(request.caller, request.path["id"], request.body.message if request.body else "")
        return json_response(await actions.get_json(request.path["id"]))

    async def decide(choice: Choice, request: Request) -> Response:
        path, message = request.path, request.body.message
        extension_id = path.get("extension", "")
        decided = actions.decide(request.caller, path["id"], choice, extension_id=extension_id, message=message)
        return json_response(await decided)

    decisions: Sequence[tuple[str, str, Choice]] = (
        ("/{id}/approve", "Approve an action that waits for approval", "approve"),
        ("/{id}/undo/{extension}/approve", "Approve an extension", "approve"),
        ("/{id}/deny", "Deny an action that waits for approval", "deny"),
        ("/{id}/undo/{extension}/deny", "Deny an extension", "deny"),
        ("/{id}/undo/{extension}/cancel", "Withdraw an extension", "cancel"),
    )
    for path, summary, choice in decisions:
        route(f"POST {path}", summary, response=Action, **_decision(choice))(partial(decide, choice))

    @route(
        "POST /{id}/undo",
        "Undo an action",
        body=UndoInput,
        response=Action,
        status=201,
        permission="manageAction",
        purpose="undo action",
        errors=(404, 409, 422),
        request_headers=KEY_HEADER,
    )
    async def undo(request: Request) -> Response:
        key, body = idempotency_key(request)
        number = request.path["id"]
        return await answer(await undos.undo(request.caller, number, request.body, key=key, body=f"{number} {body}"))

    @route(
        "PATCH /{id}/undo",
        "Change when core undoes an action",
        body=UndoTimeInput,
        purpose="change when an action is undone",
        **_CHANGES,
    )
    async def set_undo_time(request: Request) -> Response:
        minutes = request.body.undo_after_minutes
        return json_response(await undos.set_time(request.caller, request.path["id"], minutes))

    return [
        *route,
        search_endpoint(BASE, actions.search, list[Action], "actions"),
    ]


# --- runs on several objects ------------------------------------------------------------------------------------------


def bulk_endpoints(bulks: Bulks) -> list[Endpoint]:
    """Routes under `/api/connector/engine/action/_bulk`."""
    route = Routes(BULK)

    @route(
        "POST",
        "Run a responder on several objects",
        body=BulkInput,
        response=BulkAnswer,
        errors=(404, 409, 422, 429),
        **_STARTS,
    )
    async def run(request: Request) -> Response:
        key, body = idempotency_key(request)
        return json_response(bulk_answer(await bulks.start(request.caller, request.body, key=key, body=body)))

    @route("GET /{id}", "See how far a run on several objects is", response=Bulk, errors=(404,))
    async def get(request: Request) -> Response:
        return json_response(await bulks.get(request.path["id"]))

    @route(
        "POST /{id}/retry",
        "Run again on the objects where a bulk did not succeed or was undone",
        response=BulkAnswer,
        errors=(404, 409, 422, 429),
        **_STARTS,
    )
    async def retry(request: Request) -> Response:
        key, _ = idempotency_key(request)
        return json_response(bulk_answer(await bulks.retry(request.caller, request.path["id"], key=key)))

    async def decide(choice: Choice, request: Request) -> Response:
        asked: BulkDecision = request.body
        decided = bulks.decide(request.caller, request.path["id"], choice, shown=asked.actions, message=asked.message)
        return json_response(bulk_answer(await decided))

    choices: Sequence[tuple[str, Choice]] = (("Approve", "approve"), ("Deny", "deny"))
    for verb, choice in choices:
        summary, options = f"{verb} all runs of a bulk that wait for approval", _decision(choice, BulkDecision)
        route(f"POST /{{id}}/{choice}", summary, response=BulkAnswer, **options)(partial(decide, choice))

    return route


def bulk_answer(outcomes: BulkOutcomes) -> str:
    """The JSON of a BulkAnswer; that of its actions is sent as it is stored."""
    entries = [
        f'{{"objectId":{json.dumps(object_id)},"status":201,"action":{outcome}}}'
        if isinstance(outcome, str)
        else json.dumps({"objectId": object_id, **outcome.fields()}, ensure_ascii=False)
        for object_id, outcome in outcomes.targets
    ]
    return f'{{"id":"{outcomes.id}","actions":[{",".join(entries)}]}}'


# --- what is in force -------------------------------------------------------------------------------------------------


def measure_endpoints(measures: Measures) -> list[Endpoint]:
    """Routes under `/api/connector/engine/measure`."""
    route = Routes(MEASURE)
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
        return json_response(bulk_answer(await measures.extend_all(request.caller, ends.ends, ends.note.strip())))

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
