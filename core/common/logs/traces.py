"""Traces for OpenTelemetry, made of what is logged: all that has one request id is one trace.

Imported only where one of ENDPOINTS is set, since the library is large; the extra `telemetry` brings it.
"""

import hashlib
import time
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

ROOT = "interaction"  # the event of a click; all others with its id are below it
DURATIONS_MS = {ROOT: 0.0, "request_answered": 1.0, "run_started": 0.0, "run_ended": 1000.0, "cards_rendered": 0.0}
"""The events that are spans, and how many ms the unit of their `ms` or `ran_s` is; 0 for those of one moment."""
ATTRIBUTES = (
    "type",
    "feature",
    "method",
    "route",
    "status",
    "action",
    "object",
    "root",
    "responder",
    "engine",
    "outcome",
)
TIMEOUT_S = 2.0  # for a collector; a process that ends waits for it

_ids: ContextVar[tuple[int, int]] = ContextVar("ids")
"""The trace's id and its root's, for the span that is made next."""


class _Ids(RandomIdGenerator):
    """Gives the root of a trace the ids that the other processes know."""

    def generate_trace_id(self) -> int:
        return _ids.get()[0]

    def generate_span_id(self) -> int:
        ids = _ids.get(None)
        return ids[1] if ids else super().generate_span_id()


class Traces:
    """Sends spans in the background, to where the variables of OpenTelemetry say."""

    def __init__(self) -> None:
        provider = TracerProvider(resource=Resource.create({"service.name": "responder-bot"}), id_generator=_Ids())
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=TIMEOUT_S)))
        self._tracer = provider.get_tracer("responder-bot")

    def add(self, _: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Make what is logged a span, if it is one. A processor of structlog."""
        unit_ms = DURATIONS_MS.get(event["event"])
        if unit_ms is not None:
            for request_id in event.get("request_ids") or [event.get("request_id")]:
                if request_id:
                    self._span(event, request_id, unit_ms * (event.get("ms") or event.get("ran_s") or 0))
        return event

    def _span(self, event: MutableMapping[str, Any], request_id: str, ms: float) -> None:
        digest = hashlib.sha256(request_id.encode()).digest()
        trace_id, root_id = int.from_bytes(digest[:16]), int.from_bytes(digest[16:24])
        is_root = event["event"] == ROOT
        root = NonRecordingSpan(SpanContext(trace_id, root_id, is_remote=True, trace_flags=TraceFlags(1)))
        ended = time.time_ns()
        token = _ids.set((trace_id, root_id)) if is_root else None
        try:
            span = self._tracer.start_span(
                event["event"],
                context=None if is_root else set_span_in_context(root),
                attributes={key: str(event[key]) for key in ATTRIBUTES if event.get(key) is not None},
                start_time=ended - int(ms * 1e6),
            )
        finally:
            if token is not None:
                _ids.reset(token)
        span.end(end_time=ended)
