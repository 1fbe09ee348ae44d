"""Who somebody is, on the wire (`semantics.md 10`)."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field
from starlette.responses import Response

from core.access import Access, Caller
from core.api.endpoint import Endpoint, Request, json_response
from core.models import Person


class CurrentUser(Person):
    """A person, with what public clients look for in an answer to "who am I"."""

    id_: str = Field(alias="_id")
    id: str
    type_: Literal["user"] = Field("user", alias="_type")
    name: str
    organisation: str


def endpoints(access: Access, organisation: str) -> Sequence[Endpoint]:
    async def by_slack(request: Request) -> Response:
        return json_response(access.person_by_slack(request.path["team"], request.path["user"]))

    async def current(request: Request) -> Response:
        return json_response(_current(request.caller, organisation))

    return [
        Endpoint(
            "GET",
            "/api/user/by-slack/{team}/{user}",
            by_slack,
            "Find the user linked to a Slack person",
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


def _current(caller: Caller, organisation: str) -> CurrentUser:
    return CurrentUser(
        id_=caller.login,
        id=caller.login,
        login=caller.login,
        name=caller.login,
        profile=caller.profile,
        permissions=sorted(caller.permissions),
        clearance=caller.clearance,
        organisation=organisation,
    )
