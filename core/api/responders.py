"""Routes of responders: which can run on an object and, with `explain`, why others can't."""

from pydantic import TypeAdapter
from starlette.responses import Response

from core.actions import rights
from core.actions.service import Actions
from core.api.http.endpoint import Endpoint, Request, Routes, bool_param, json_response
from core.common.database import Database, Reads
from core.models import ObjectInContext, OfferedResponder, parse_id
from core.responders import target as targets
from core.responders.guards import Guards, RulesFor
from core.responders.registry import Registry
from core.store import actions as stored

_LIST: TypeAdapter[list[OfferedResponder]] = TypeAdapter(list[OfferedResponder])


def endpoints(registry: Registry, guards: Guards, actions: Actions, database: Database) -> list[Endpoint]:
    """Routes of responders and of objects as responders get them."""
    route = Routes()

    @route(
        "GET /api/connector/engine/responder/{kind}/{id}",
        "List the responders available for an object",
        response=list[OfferedResponder],
        errors=(404,),
        query={"explain": "`true`: also those that can't run on it, each with a verdict, reasons and its policy"},
    )
    async def list_responders(request: Request) -> Response:
        kind, number = targets.parse_kind(request.path["kind"]), parse_id(request.path["id"])
        caller, is_explained = request.caller, bool_param(request, "explain")

        def read(reads: Reads) -> list[OfferedResponder]:
            target = targets.load(reads, kind, number)
            rules = RulesFor(guards, reads, caller.login)
            if not is_explained:
                return registry.offered(target, rules)
            return rights.explained(reads, registry, rules, caller, target, stored.recent_runs(reads))

        return json_response(_LIST.dump_json(await database.snapshot(read), by_alias=True, exclude_none=True))

    @route(
        "GET /api/connector/engine/object/{kind}/{id}",
        "Get an object as a responder gets it, with its parents and levels",
        response=ObjectInContext,
        errors=(404,),
    )
    async def get_in_context(request: Request) -> Response:
        kind, number = targets.parse_kind(request.path["kind"]), parse_id(request.path["id"])
        target = await database.read(lambda reads: targets.load(reads, kind, number))
        return json_response(
            ObjectInContext(
                object_type=target.object_type,
                object_id=f"~{target.id}",
                root_id=f"~{target.root_id}",
                tlp=target.tlp,
                pap=target.pap,
                object=dict(target.json),
            ).model_dump_json(by_alias=True)
        )

    return route
