"""The route by which sources send what they have, in a shape of their own (core/docs/sources.md)."""

from dataclasses import replace

from starlette.responses import Response

from core.api.actions import idempotency_key
from core.api.http.endpoint import ANONYMOUS, Endpoint, Request, json_response
from core.sources.ingest import Received, Sources


def endpoints(sources: Sources) -> list[Endpoint]:
    async def receive(request: Request) -> Response:
        caller = None if request.caller is ANONYMOUS else request.caller
        sender = sources.sender(request.path["name"], caller, request.headers)
        key, _ = idempotency_key(request)
        received = await sources.receive(sender, await request.read_bytes(), key)
        return json_response(received, status=201 if received.created else 200)

    endpoint = Endpoint(
        "POST",
        "/api/ingest/{name}",
        receive,
        "Take what a source sends, in the shape that the settings describe",
        response=Received,
        status=201,
        errors=(200, 404, 422, 429),
        programs=("source",),
        reads_bytes=True,
        request_headers={
            "Idempotency-Key": "a further request with this key changes nothing for 24 h",
            "X-Signature": "in place of a key: HMAC-SHA256 of X-Timestamp, `:` and the body, in hexadecimal",
            "X-Timestamp": "when it was signed, in seconds since 1970",
        },
    )
    # Prometheus adds this to the address that it is given.
    return [endpoint, replace(endpoint, path=f"{endpoint.path}/api/v2/alerts")]
