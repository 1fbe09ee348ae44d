"""Routes of users, user groups and requests for access."""

from collections.abc import Sequence
from typing import Literal, get_args

from pydantic import Field
from starlette.responses import Response

from core.api.http.endpoint import Endpoint, Request, json_list_response, json_response
from core.common.errors import ResponderBotError
from core.models import (
    TLP_NAMES,
    AccessInput,
    AccessRequest,
    ApproveAccessInput,
    Decision,
    Group,
    GroupInput,
    NewKey,
    Permission,
    Person,
    SlackUsers,
    UserEntry,
)
from core.people import WHO_LIMIT, People

REQUEST, USER, GROUP = "/api/access", "/api/user", "/api/group"


class CurrentUser(Person):
    """The answer to "who am I", with the fields that public clients look for."""

    id_: str = Field(alias="_id")
    id: str
    type_: Literal["user"] = Field("user", alias="_type")
    name: str
    organisation: str


def endpoints(people: People, organisation: str) -> Sequence[Endpoint]:
    """Routes under `/api/access`, `/api/user` and `/api/group`."""

    async def find_by_slack(request: Request) -> Response:
        return json_response(await people.person_by_slack(request.path["team"], request.path["user"]))

    async def who(request: Request) -> Response:
        clearance, permission = request.query.get("clearance", "0"), request.query.get("permission")
        if clearance not in map(str, range(len(TLP_NAMES))):
            raise ResponderBotError("bad_request", "clearance must be a number from 0 to 3.")
        permissions: Sequence[Permission] = get_args(Permission)
        if permission is not None and permission not in permissions:
            raise ResponderBotError("bad_request", f"permission must be one of {', '.join(permissions)}.")
        known = next((p for p in permissions if p == permission), None)
        return json_list_response(await people.who(int(clearance), known))

    async def slack_users(request: Request) -> Response:
        return json_response(await people.slack_users(request.path["login"]))

    async def current(request: Request) -> Response:
        caller = request.caller
        user = CurrentUser(
            id_=caller.login,
            id=caller.login,
            login=caller.login,
            name=caller.login,
            profile=caller.profile,
            permissions=sorted(caller.permissions),
            clearance=caller.clearance,
            organisation=organisation,
        )
        return json_response(user)

    async def ask(request: Request) -> Response:
        body: AccessInput = request.body
        slack_id = f"{body.team}:{body.slack_user}"
        access_request, is_new = await people.request(request.caller, slack_id, body.name)
        return json_response(access_request, status=201 if is_new else 200)

    async def list_requests(request: Request) -> Response:
        return json_list_response(await people.requests(request.caller))

    async def get(request: Request) -> Response:
        return json_response(await people.request_by_id(request.caller, request.path["id"]))

    async def approve(request: Request) -> Response:
        return json_response(await people.approve(request.caller, request.path["id"], request.body))

    async def deny(request: Request) -> Response:
        return json_response(await people.deny(request.caller, request.path["id"], request.body.message))

    async def list_users(request: Request) -> Response:
        return json_list_response(await people.list_users(request.caller))

    async def disable(request: Request) -> Response:
        return json_response(await people.disable(request.caller, request.path["login"]))

    async def enable(request: Request) -> Response:
        return json_response(await people.enable(request.caller, request.path["login"]))

    async def new_key(request: Request) -> Response:
        return json_response(await people.new_key(request.caller, request.path["login"]))

    async def list_groups(_: Request) -> Response:
        return json_list_response(await people.groups())

    async def set_members(request: Request) -> Response:
        return json_response(await people.set_members(request.caller, request.path["name"], request.body.members))

    by_id, user = f"{REQUEST}/{{id}}", f"{USER}/{{login}}"
    return [
        Endpoint(
            "GET",
            "/api/user/by-slack/{team}/{user}",
            find_by_slack,
            "Find the user linked to a person in Slack",
            response=Person,
            permission="actOnBehalf",
            purpose="look up who is who in Slack",
            errors=(404,),
        ),
        Endpoint(
            "GET",
            "/api/user/who",
            who,
            f"Name people who may see a TLP or have a permission, at most {WHO_LIMIT}",
            response=list[Person],
            permission="actOnBehalf",
            purpose="look up who may do what",
            query={"clearance": "the TLP that they may see, 0 to 3", "permission": "the permission that they have"},
        ),
        Endpoint(
            "GET",
            "/api/user/{login}/slack",
            slack_users,
            "Find the people in Slack linked to this user",
            response=SlackUsers,
            permission="actOnBehalf",
            purpose="look up who is who in Slack",
        ),
        Endpoint(
            "GET",
            "/api/user/current",
            current,
            "Show who this key acts as",
            response=CurrentUser,
            allow_source_profile=True,
        ),
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
        Endpoint("GET", by_id, get, "Get a request for access", response=AccessRequest, errors=(404,)),
        Endpoint(
            "POST",
            f"{by_id}/approve",
            approve,
            "Give access to who asked for it",
            body=ApproveAccessInput,
            response=AccessRequest,
            errors=(403, 404, 409),
        ),
        Endpoint(
            "POST",
            f"{by_id}/deny",
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
