"""Routes of users and user groups."""

from collections.abc import Sequence
from functools import partial
from typing import Literal, get_args

from pydantic import Field
from starlette.responses import Response

from core.api.http.endpoint import Endpoint, Request, Routes, changing, json_list_response, json_response
from core.common.errors import ResponderBotError
from core.models import (
    TLP_NAMES,
    Group,
    GroupInput,
    NewKey,
    Permission,
    Person,
    SlackUsers,
    UserEntry,
)
from core.people import WHO_LIMIT, People

USER, GROUP = "/api/user", "/api/group"


class CurrentUser(Person):
    """The answer to "who am I", with the fields that public clients look for."""

    id_: str = Field(alias="_id")
    id: str
    type_: Literal["user"] = Field("user", alias="_type")
    name: str
    organisation: str


def endpoints(people: People, organisation: str) -> Sequence[Endpoint]:
    """Routes under `/api/user` and `/api/group`."""
    route = Routes()
    change = partial(route, permission="manageUser", errors=(404,))
    user = f"{USER}/{{login}}"

    @route(
        "GET /api/user/by-slack/{team}/{user}",
        "Find the user linked to a person in Slack",
        response=Person,
        permission="actOnBehalf",
        purpose="look up who is who in Slack",
        errors=(404,),
    )
    async def find_by_slack(request: Request) -> Response:
        return json_response(await people.person_by_slack(request.path["team"], request.path["user"]))

    @route(
        "GET /api/user/who",
        f"Name people who may see a TLP or have a permission, at most {WHO_LIMIT}",
        response=list[Person],
        permission="actOnBehalf",
        purpose="look up who may do what",
        query={"clearance": "the TLP that they may see, 0 to 3", "permission": "the permission that they have"},
    )
    async def who(request: Request) -> Response:
        clearance, permission = request.query.get("clearance", "0"), request.query.get("permission")
        if clearance not in map(str, range(len(TLP_NAMES))):
            raise ResponderBotError("bad_request", "clearance must be a number from 0 to 3.")
        permissions: Sequence[Permission] = get_args(Permission)
        if permission is not None and permission not in permissions:
            raise ResponderBotError("bad_request", f"permission must be one of {', '.join(permissions)}.")
        known = next((p for p in permissions if p == permission), None)
        return json_list_response(await people.who(int(clearance), known))

    @route(
        "GET /api/user/{login}/slack",
        "Find the people in Slack linked to this user",
        response=SlackUsers,
        permission="actOnBehalf",
        purpose="look up who is who in Slack",
    )
    async def slack_users(request: Request) -> Response:
        return json_response(await people.slack_users(request.path["login"]))

    @route("GET /api/user/current", "Show who this key acts as", response=CurrentUser, programs=("source",))
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

    @route(
        f"GET {USER}",
        "List all users",
        response=list[UserEntry],
        permission="manageUser",
        or_permission="actOnBehalf",
        purpose="see all users",
    )
    async def list_users(_: Request) -> Response:
        return json_list_response(await people.all())

    change(f"POST {user}/disable", "End the access of somebody", response=UserEntry, purpose="end access")(
        changing(people.disable)
    )

    change(f"POST {user}/enable", "Give somebody access again", response=UserEntry, purpose="give access back")(
        changing(people.enable)
    )

    change(f"POST {user}/key", "Replace the key of somebody", response=NewKey, purpose="replace keys")(
        changing(people.new_key)
    )

    @route(f"GET {GROUP}", "List groups with their members", response=list[Group])
    async def list_groups(_: Request) -> Response:
        return json_list_response(await people.groups())

    route(
        f"PUT {GROUP}/{{name}}",
        "Set the members of a group",
        body=GroupInput,
        response=Group,
        permission="manageUser",
        purpose="change a group",
    )(changing(people.set_members))

    return route
