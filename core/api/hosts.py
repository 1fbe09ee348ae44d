"""Routes of the hosts on which cores run."""

from starlette.responses import Response

from core.api.http.endpoint import Endpoint, Request, json_list_response
from core.hosts.host_list import HostList
from core.models import DrainInput, HostEntry


def endpoints(hosts: HostList) -> list[Endpoint]:
    """Routes under `/api/host`."""

    async def list_all(_: Request) -> Response:
        return json_list_response(await hosts.all())

    async def drain(request: Request) -> Response:
        body: DrainInput = request.body
        return json_list_response(await hosts.drain(request.caller, request.path["name"], body.core))

    async def cancel(request: Request) -> Response:
        return json_list_response(await hosts.drain(request.caller, request.path["name"], cancel=True))

    path = "/api/host/{name}/drain"
    return [
        Endpoint(
            "GET",
            "/api/host",
            list_all,
            "List the hosts on which cores run, with what each runs",
            response=list[HostEntry],
            permission="manageUser",
        ),
        Endpoint(
            "POST",
            path,
            drain,
            "Have the cores of a host take no more runs, and end once theirs have",
            body=DrainInput,
            response=list[HostEntry],
            errors=(403, 404),
        ),
        Endpoint(
            "DELETE",
            path,
            cancel,
            "Have the cores of a host go on, unless they have ended",
            response=list[HostEntry],
            errors=(403, 404),
        ),
    ]
