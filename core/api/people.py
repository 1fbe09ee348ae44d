"""Routes of requests for access, of users for admins, and of groups."""

from collections.abc import Sequence

from starlette.responses import Response

from core.api.endpoint import Endpoint, Request, json_list_response, json_response
from core.models import (
    AccessInput,
    AccessRequest,
    ApproveAccessInput,
    Decision,
    Group,
    GroupInput,
    NewKey,
    UserEntry,
)
from core.people import People

REQUEST, USER, GROUP = "/api/access", "/api/user", "/api/group"


def endpoints(people: People) -> Sequence[Endpoint]:
    """Routes under `/api/access`, `/api/user` and `/api/group`."""

    async def ask(request: Request) -> Response:
        body: AccessInput = request.body
        slack_id = f"{body.team}:{body.slack_user}"
        found, is_new = await people.request(request.caller, slack_id, body.name)
        return json_response(found, status=201 if is_new else 200)

    async def list_requests(request: Request) -> Response:
        return json_list_response(await people.requests(request.caller))

    async def get(request: Request) -> Response:
        return json_response(await people.request_by_id(request.caller, request.path["id"]))

    async def approve(request: Request) -> Response:
        return json_response(await people.approve(request.caller, request.path["id"], request.body))

    async def deny(request: Request) -> Response:
        return json_response(await people.deny(request.caller, request.path["id"], request.body.message))

    async def list_users(request: Request) -> Response:
        return json_list_response(await people.users(request.caller))

    async def disable(request: Request) -> Response:
        return json_response(await people.set_disabled(request.caller, request.path["login"], True))

    async def enable(request: Request) -> Response:
        return json_response(await people.set_disabled(request.caller, request.path["login"], False))

    async def new_key(request: Request) -> Response:
        return json_response(await people.new_key(request.caller, request.path["login"]))

    async def list_groups(_: Request) -> Response:
        return json_list_response(await people.groups())

    async def set_members(request: Request) -> Response:
        return json_response(await people.set_members(request.caller, request.path["name"], request.body.members))

    one, user = f"{REQUEST}/{{id}}", f"{USER}/{{login}}"
    return [
        Endpoint(
            "POST",
            REQUEST,
            ask,
            "Ask for access for somebody in Slack; 200 with the request that waits already",
            body=AccessInput,
            response=AccessRequest,
            status=201,
            permission="actOnBehalf",
            for_bot=True,
            purpose="ask for access for somebody",
            errors=(409,),
        ),
        Endpoint("GET", REQUEST, list_requests, "List requests for access", response=list[AccessRequest]),
        Endpoint("GET", one, get, "Get a request for access", response=AccessRequest, errors=(404,)),
        Endpoint(
            "POST",
            f"{one}/approve",
            approve,
            "Give access to who asked for it",
            body=ApproveAccessInput,
            response=AccessRequest,
            errors=(403, 404, 409),
        ),
        Endpoint(
            "POST",
            f"{one}/deny",
            deny,
            "Deny a request for access",
            body=Decision,
            response=AccessRequest,
            errors=(403, 404, 409),
        ),
        Endpoint("GET", USER, list_users, "List all users", response=list[UserEntry]),
        Endpoint(
            "POST", f"{user}/disable", disable, "End the access of somebody", response=UserEntry, errors=(403, 404)
        ),
        Endpoint("POST", f"{user}/enable", enable, "Give somebody access again", response=UserEntry, errors=(403, 404)),
        Endpoint("POST", f"{user}/key", new_key, "Replace the key of somebody", response=NewKey, errors=(403, 404)),
        Endpoint("GET", GROUP, list_groups, "List groups with their members", response=list[Group]),
        Endpoint(
            "PUT",
            f"{GROUP}/{{name}}",
            set_members,
            "Set the members of a group",
            body=GroupInput,
            response=Group,
            errors=(403,),
            for_bot=True,
        ),
    ]
