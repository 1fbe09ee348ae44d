"""The route of figures (core/docs/stats.md)."""

import csv
import io
from collections.abc import Sequence

from starlette.responses import Response

from core.api.http.endpoint import Endpoint, Request, Routes, int_param, json_list_response
from core.common.clock import DAY_MS, Clock
from core.common.errors import bad_request
from core.figures.figures import MAX_DAYS, WITHIN, Figures
from core.models import Figure

DEFAULT_DAYS = 28
MAX_MILLIS = 2**53


def endpoints(figures: Figures, clock: Clock) -> Sequence[Endpoint]:
    """`GET /api/stats`."""
    route = Routes()

    @route(
        "GET /api/stats",
        "Read how long people took",
        response=list[Figure],
        query={
            "since": f"in ms; default: {DEFAULT_DAYS} days with today. Days are of UTC, at most {MAX_DAYS}",
            "until": "in ms; default: now",
            "by": "`day`, `week`, `source` or `responder`; default: week",
            "format": "`json` or `csv`; default: json",
        },
    )
    async def stats(request: Request) -> Response:
        until = int_param(request, "until", clock(), MAX_MILLIS)
        since = int_param(request, "since", max(until - (DEFAULT_DAYS - 1) * DAY_MS, 0), MAX_MILLIS)
        listed = await figures.listed(since, until, request.query.get("by", "week"))
        wanted = request.query.get("format", "json")
        if wanted not in ("json", "csv"):
            raise bad_request("`format` must be json or csv")
        if wanted == "csv":
            return Response(_csv(listed), media_type="text/csv")
        return json_list_response([figure.to_json() for figure in listed])

    return route


def _csv(figures: Sequence[Figure]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(["about", "figure", "number", "mean_ms", "max_ms", *(f"within_{name}" for name in WITHIN)])
    for one in figures:
        about = f"'{one.about}" if one.about.startswith(("=", "+", "-", "@")) else one.about  # no formula
        writer.writerow([about, one.figure, one.number, one.mean_ms, one.max_ms, *one.within.values()])
    return out.getvalue()
