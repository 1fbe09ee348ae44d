"""Routes of users."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from starlette.responses import Response

from core.access import Access
from core.api.endpoint import Endpoint, Request, json_response
from core.models import Person


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
        return json_response(access.person_by_slack(request.path["team"], request.path["user"]))

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
            "/api/user/current",
            current,
            "Show who this key acts as",
            response=CurrentUser,
            allow_source_profile=True,
        ),
    ]
