"""Routes of case templates."""

from functools import partial

from core.api.http.endpoint import Endpoint, Routes, changing, getting, search_endpoint
from core.models import CaseTemplate, CaseTemplateInput
from core.records.cases import CaseTemplates

BASE = "/api/case/template"


def endpoints(templates: CaseTemplates) -> list[Endpoint]:
    """Routes under `/api/case/template`."""
    route = Routes(BASE)

    route(
        "POST",
        "Create a case template",
        body=CaseTemplateInput,
        response=CaseTemplate,
        status=201,
        permission="manageCaseTemplate",
        purpose="create case template",
    )(changing(templates.create, 201))

    route(
        "GET /{idOrName}", "Get a case template by id or by name", by_name=True, response=CaseTemplate, errors=(404,)
    )(getting(templates.get_json))

    return [
        *route,
        search_endpoint(BASE, partial(templates.search, "case_template"), list[CaseTemplate], "case templates"),
    ]
