"""Actions on the wire: run a responder, list and follow what was run, cancel, approve, deny."""

import json
from typing import Any

from starlette.responses import Response

from core.actions import target as targets
from core.actions.service import LIST_LIMIT, Actions
from core.api import search as search_api
from core.api.endpoint import Endpoint, Request, json_response, wait_seconds
from core.common.errors import ResponderBotError
from core.models import Action, Decision, RunInput
from core.records.search import EVERYTHING, parse_range

BASE = "/api/connector/engine/action"
MAX_WAIT_S = 60  # semantics.md 5
_RANGE = {
    "range": f"`all`, or `from-to` such as 0-100, newest first; one answer has at most {LIST_LIMIT}, and X-Total and"
    " Link say what is left. In a long one the bulk of reports is left out"
}
KEY_LIMIT = 255  # longer is no key but a mistake


def endpoints(actions: Actions) -> list[Endpoint]:
    """The operations of `interface.md 4.1` and `4.4`, and those of `semantics.md 5`."""

    async def run(request: Request) -> Response:
        asked: RunInput = request.body
        key = _key(request)
        body = json.dumps(request.raw, sort_keys=True) if key else ""
        started = await actions.start(request.caller, asked, key=key, body=body)
        if not started.new:
            return json_response(started.action)
        return json_response(await actions.with_job_id(started.action), status=201)

    async def listing(request: Request) -> Response:
        kind, object_id = targets.parse_kind(request.path["kind"]), request.path["id"]
        window = parse_range(request.query.get("range", "all"))
        text = actions.list_json(kind, object_id) if window == EVERYTHING else None
        if text is not None:
            return json_response(text)
        found = await request.run_search(actions.list_range(kind, object_id, window))
        return search_api.answer_found(found, request, window)

    async def one(request: Request) -> Response:
        wait_s = wait_seconds(request, "wait", MAX_WAIT_S)
        return json_response(await actions.wait(request.path["id"], wait_s))

    async def cancel(request: Request) -> Response:
        await actions.cancel(request.caller, request.path["id"])
        return json_response(actions.get_json(request.path["id"]))

    async def approve(request: Request) -> Response:
        return json_response(await actions.approve(request.caller, request.path["id"]))

    async def deny(request: Request) -> Response:
        said: Decision = request.body
        return json_response(await actions.deny(request.caller, request.path["id"], said.message))

    def decides(handler: Any, path: str, summary: str) -> Endpoint:
        return Endpoint(
            "POST",
            f"{BASE}/{{id}}/{path}",
            handler,
            summary,
            body=Decision,
            response=Action,
            permission="manageAction",
            purpose=f"{path} an action",
            errors=(404, 409),
        )

    return [
        Endpoint(
            "POST",
            BASE,
            run,
            "Run a responder",
            body=RunInput,
            response=Action,
            status=201,
            permission="manageAction",
            purpose="create action",
            permission_label="manageAction (manageTask)",
            errors=(404, 409, 422),
            request_headers={
                "Idempotency-Key": "the same again within 24 hours answers 200 with the same action and starts nothing"
            },
        ),
        Endpoint(
            "GET",
            f"{BASE}/responder/{{kind}}/{{id}}",
            listing,
            "List the actions run on an object",
            response=list[Action],
            errors=(404,),
            query=_RANGE,
        ),
        Endpoint(
            "GET",
            f"{BASE}/{{kind}}/{{id}}",
            listing,
            "List the actions run on an object",
            response=list[Action],
            errors=(404,),
            query=_RANGE,
        ),
        Endpoint(
            "GET",
            f"{BASE}/{{id}}",
            one,
            "One action, with its whole report",
            response=Action,
            errors=(404,),
            query={"wait": f"how many seconds to wait for its next change, at most {MAX_WAIT_S}"},
        ),
        Endpoint(
            "DELETE",
            f"{BASE}/{{id}}",
            cancel,
            "Cancel an action",
            response=Action,
            permission="manageAction",
            purpose="cancel action",
            errors=(404, 409),
        ),
        search_api.endpoint(BASE, actions.search, list[Action], "actions"),
        decides(approve, "approve", "Agree to an action that waits for approval"),
        decides(deny, "deny", "Refuse an action that waits for approval"),
    ]


def _key(request: Request) -> str:
    key = request.headers.get("idempotency-key", "")
    if len(key) > KEY_LIMIT:
        raise ResponderBotError("bad_request", f"An Idempotency-Key has at most {KEY_LIMIT} characters.")
    return key
