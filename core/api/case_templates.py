"""Routes of case templates."""

from starlette.responses import Response

from core.api.http import search
from core.api.http.endpoint import Endpoint, Request, Routes, json_response
from core.models import CaseTemplate, CaseTemplateInput
from core.records.case_templates import CaseTemplates

BASE = "/api/case/template"


def endpoints(templates: CaseTemplates) -> list[Endpoint]:
    """Routes under `/api/case/template`."""
    route = Routes(BASE)

    @route(
        "POST",
        "Create a case template",
        body=CaseTemplateInput,
        response=CaseTemplate,
        status=201,
        permission="manageCaseTemplate",
        purpose="create case template",
    )
    async def create(request: Request) -> Response:
        return json_response(await templates.create(request.caller, request.body), status=201)

    @route(
        "GET /{idOrName}", "Get a case template by id or by name", by_name=True, response=CaseTemplate, errors=(404,)
    )
    async def get(request: Request) -> Response:
        return json_response(await templates.get_json(request.path["idOrName"]))

    return [
        *route,
        search.endpoint(BASE, templates.search, list[CaseTemplate], "case templates"),
    ]
