"""Downloads of the files of artifacts."""

from urllib.parse import quote

from starlette.responses import Response

from core.api.http.endpoint import Endpoint, Request, Routes, bool_param
from core.common.database import Database
from core.common.errors import ResponderBotError
from core.records import artifacts

ANY_TYPE = "application/octet-stream"
_PATH = "/api/datastore/{fileId}"
_VERSION_1 = (
    "/api/v1/observable/{observableId}/attachment/{fileId}/download",
    "/api/v1/attachment/{fileId}/download",
)
_QUERY = {"name": "the name under which the file is to be saved; without it, its id"}


def endpoints(database: Database) -> list[Endpoint]:
    """The download of a file by its id."""
    route = Routes()
    summary = "The content of a file, by the `id` of an artifact's `attachment`"

    @route(f"GET {_PATH}", summary, response=ANY_TYPE, query=_QUERY, errors=(404,))
    async def download(request: Request) -> Response:
        return await _answer(database, request)

    return route


def version_1(database: Database) -> list[Endpoint]:
    """The same under the addresses of version 1; the file's id is enough to find it."""

    async def download(request: Request) -> Response:
        if bool_param(request, "asZip"):
            raise ResponderBotError("bad_request", "Files are not sent as a zip; leave out asZip.")
        return await _answer(database, request)

    return [Endpoint("GET", path, download, "Download a file", response=ANY_TYPE, errors=(404,)) for path in _VERSION_1]


async def _answer(database: Database, request: Request) -> Response:
    file_id = request.path["fileId"]
    content = await database.read(lambda reads: artifacts.file_content(reads, file_id))
    name = quote(request.query.get("name") or file_id, safe="")
    # Foreign content: no browser may ever show it as a page of core's.
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}", "Content-Security-Policy": "sandbox"}
    return Response(content, 200, headers, ANY_TYPE)
