"""Traces: from a click to the card that shows its end in one trace, and nothing of them where they are off."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from bot.slack_emulator import EmulatedUser
from core.common.logs import ENDPOINTS
from tests.bot.running import ALERT, ANNA, SOC, find_card
from tests.bot.test_serve import logged, serving
from tests.documents import ROOT

ON = {ENDPOINTS[0]: "http://127.0.0.1:9"}


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)


def test_nothing_is_imported_where_traces_are_off() -> None:
    code = "import sys; from core.common import logs; logs.configure(); print('opentelemetry' in sys.modules)"
    assert python(code).stdout == "False\n"


def test_traces_without_their_library_are_refused_in_a_sentence(tmp_path: Path) -> None:
    code = "import sys; sys.modules['opentelemetry'] = None; from bot.cli import main; sys.exit(main(['core']))"
    ended = python(f"import os; os.chdir({str(tmp_path)!r}); {code}", **ON, RESPONDER_BOT_CORE_PORT="0")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "is set, and OpenTelemetry is missing; install responder-bot[telemetry]" in ended.stderr


@asynccontextmanager
async def collector() -> AsyncIterator[tuple[str, list[Any]]]:
    """A collector of traces: its address, and the spans that came."""
    parsed = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")
    spans: list[Any] = []

    async def take(request: web.Request) -> web.Response:
        message = parsed.ExportTraceServiceRequest.FromString(await request.read())
        spans.extend(span for r in message.resource_spans for s in r.scope_spans for span in s.spans)
        return web.Response(body=b"", content_type="application/x-protobuf")

    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", spans
    finally:
        await runner.cleanup()


@pytest.mark.slow
async def test_a_click_and_all_that_comes_of_it_is_one_trace(tmp_path: Path) -> None:
    async with collector() as (url, spans):
        environment = {ENDPOINTS[0]: url, "OTEL_EXPORTER_OTLP_COMPRESSION": "none"}
        async with (
            serving(tmp_path, fault=lambda _: None, **environment) as (emulator, client, process),
            EmulatedUser(emulator.url, emulator.page_token, ANNA) as anna,
        ):
            await logged(process, "slack_connected")
            alert_id = (await client.create_alert(ALERT)).id
            await anna.until(lambda view: find_card(view.messages(SOC), alert_id) or {})
            await anna.command(SOC, f"/responder run ResponderBot_CloseAsFalsePositive {alert_id}")
            await logged(process, "run_ended")
            await logged(process, "cards_rendered")
        # `serve` has ended, and with it the last export.
    (click,) = [span for span in spans if span.name == "interaction"]
    trace = [span for span in spans if span.trace_id == click.trace_id]
    assert {"request_answered", "run_started", "run_ended", "cards_rendered"} <= {span.name for span in trace}
    assert not click.parent_span_id
    assert {span.parent_span_id for span in trace if span is not click} == {click.span_id}
    started, ended = (next(span for span in trace if span.name == name) for name in ("run_started", "run_ended"))
    told = {attribute.key: attribute.value.string_value for span in (started, ended) for attribute in span.attributes}
    assert (told["engine"], told["outcome"], told["root"]) == ("local", "succeeded", alert_id)
    assert ended.start_time_unix_nano < ended.end_time_unix_nano
    assert b"xoxb" not in b"".join(span.SerializeToString() for span in spans)


async def test_a_collector_that_is_away_stops_nothing(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.sdk")
    async with serving(tmp_path, fault=lambda _: None, **ON) as (_, client, process):
        await logged(process, "slack_connected")
        assert (await client.create_alert(ALERT)).id
        async with asyncio.timeout(60):
            process.terminate()
            assert await process.wait() == 0
