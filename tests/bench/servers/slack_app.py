"""A server that only checks the signature of a command, or Bolt with its defaults and one listener."""

import json
import sys
from typing import Any

import uvloop
from aiohttp import web
from slack_bolt.adapter.aiohttp import to_aiohttp_response, to_bolt_request
from slack_bolt.app.async_app import AsyncApp
from slack_sdk.signature import SignatureVerifier
from slack_sdk.web.async_client import AsyncWebClient

from core.app import stop_signal
from tests.bench.processes import send_line

PATH = "/slack/events"


def signature_only(slack: dict[str, Any]) -> Any:
    verifier = SignatureVerifier(slack["signing_secret"])

    async def events(request: web.Request) -> web.Response:
        body = await request.text()
        return web.Response(status=200 if verifier.is_valid_request(body, dict(request.headers)) else 401)

    return events


def bolt(slack: dict[str, Any]) -> Any:
    client = AsyncWebClient(token=slack["bot_token"], base_url=slack["api_url"])
    app = AsyncApp(client=client, signing_secret=slack["signing_secret"])

    @app.command("/responder")
    async def on_command(ack: Any) -> None:
        await ack()

    return events_of(app)


def events_of(app: AsyncApp) -> Any:
    """A handler for Bolt's app, as in Bolt's own server."""

    async def events(request: web.Request) -> web.Response:
        return await to_aiohttp_response(await app.async_dispatch(await to_bolt_request(request)))

    return events


async def serve(events: Any) -> None:
    """Serve this handler on a free port, until a signal."""
    application = web.Application()
    application.add_routes([web.post(PATH, events)])
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    send_line({"url": f"http://{host}:{port}", "path": PATH})
    await stop_signal()
    await runner.cleanup()


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    uvloop.run(serve({"signature": signature_only, "bolt": bolt}[given["mode"]](given["slack"])))
