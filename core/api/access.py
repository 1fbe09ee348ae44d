"""Routes of users."""

from collections.abc import Sequence
from typing import Literal, get_args

from pydantic import Field
from starlette.responses import Response

from core.access import WHO_LIMIT, Access
from core.api.endpoint import Endpoint, Request, json_list_response, json_response
from core.common.errors import ResponderBotError
from core.models import TLP_NAMES, Permission, Person, SlackUsers


class CurrentUser(Person):
    """The answer to "who am I", with the fields that public clients look for."""

    id_: str = Field(alias="_id")
    id: str
    type_: Literal["user"] = Field("user", alias="_type")
    name: str
    organisation: str


def endpoints(access: Access, organisation: str) -> Sequence[Endpoint]:
    """Routes under `/api/user`."""

    async def find_by_slack(request: Request) -> Response:
        return json_response(await access.person_by_slack(request.path["team"], request.path["user"]))

    async def who(request: Request) -> Response:
        clearance, permission = request.query.get("clearance", "0"), request.query.get("permission")
        if clearance not in map(str, range(len(TLP_NAMES))):
            raise ResponderBotError("bad_request", "clearance must be a number from 0 to 3.")
        permissions: Sequence[Permission] = get_args(Permission)
        if permission is not None and permission not in permissions:
            raise ResponderBotError("bad_request", f"permission must be one of {', '.join(permissions)}.")
        wanted = next((p for p in permissions if p == permission), None)
        return json_list_response(await access.who(int(clearance), wanted))

    async def slack_users(request: Request) -> Response:
        return json_response(await access.slack_users(request.path["login"]))

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
    ]
