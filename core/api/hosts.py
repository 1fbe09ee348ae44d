"""Routes of the hosts on which cores run."""

from starlette.responses import Response

from core.api.http.endpoint import Endpoint, Request, Routes, json_list_response
from core.hosts import HostList
from core.models import DrainInput, HostEntry


def endpoints(hosts: HostList) -> list[Endpoint]:
    """Routes under `/api/host`."""
    route = Routes()
    path = "/api/host/{name}/drain"

    @route(
        "GET /api/host",
        "List the hosts on which cores run, with what each runs",
        response=list[HostEntry],
        permission="manageUser",
    )
    async def list_all(_: Request) -> Response:
        return json_list_response(await hosts.all())

    @route(
        f"POST {path}",
        "Have the cores of a host take no more runs, and end once theirs have",
        body=DrainInput,
        response=list[HostEntry],
        errors=(403, 404),
    )
    async def drain(request: Request) -> Response:
        body: DrainInput = request.body
        return json_list_response(await hosts.drain(request.caller, request.path["name"], body.core))

    @route(
        f"DELETE {path}",
        "Have the cores of a host go on, unless they have ended",
        response=list[HostEntry],
        errors=(403, 404),
    )
    async def cancel(request: Request) -> Response:
        return json_list_response(await hosts.drain(request.caller, request.path["name"], cancel=True))

    return route
