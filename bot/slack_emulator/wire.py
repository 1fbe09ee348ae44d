"""HTTP endpoints for the app: Web API, response_urls, uploads, downloads and Socket Mode."""

import asyncio
import hmac
import json
from collections.abc import Awaitable, Callable

from aiohttp import web

from bot.slack_emulator import web_api
from bot.slack_emulator.errors import SlackError
from bot.slack_emulator.faults import Fault, Faults
from bot.slack_emulator.response_urls import ResponseUrls
from bot.slack_emulator.state import Json
from bot.slack_emulator.web_api import WebApi


class AppEndpoints:
    """The endpoints that Slack's SDK calls."""

    def __init__(self, api: WebApi, response_urls: ResponseUrls, faults: Faults) -> None:
        self._api = api
        self._response_urls = response_urls
        self._faults = faults

    def routes(self) -> list[web.RouteDef]:
        """Routes of the app."""
        return [
            web.get("/api/{method}", self.call, allow_head=False),
            web.post("/api/{method}", self.call),
            web.get("/link/", self._api.socket.serve),
            web.post("/actions/{team}/{key}", self.respond),
            web.post("/upload/v1/{key}", self.upload),
            web.get("/files-pri/{id}/{name:.+}", self.download),
        ]

    async def call(self, request: web.Request) -> web.StreamResponse:
        """Call a Web API method."""
        name = request.match_info["method"]
        return await self._with_faults(request, name, lambda: self._call(request, name))

    async def _call(self, request: web.Request, name: str) -> web.StreamResponse:
        try:
            values = await arguments(request)
        except SlackError as refused:
            return error_response(refused)
        token = _token(request, values)
        try:
            response = web.json_response(web_api.call(self._api, name, token, values))
        except SlackError as refused:
            response = error_response(refused)
        if token is not None and hmac.compare_digest(token.encode(), self._api.bot_token.encode()):
            response.headers["x-oauth-scopes"] = ",".join(self._api.manifest.scopes)
        self._show(name, values, response)
        return response

    def _show(self, name: str, values: Json, response: web.Response) -> None:
        body = json.loads(response.text or "{}")
        status = "ok" if body.get("ok") else str(body.get("error"))
        shown: Json = {**values, **{key: _parsed_json(values[key]) for key in ("blocks", "view") if key in values}}
        if not body.get("ok"):
            shown["answer"] = body
        self._api.delivery.record("from_app", name, shown, status)

    async def respond(self, request: web.Request) -> web.StreamResponse:
        """Handle a post to a response_url."""
        return await self._with_faults(request, "response_url", lambda: self._respond(request))

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        try:
            values = await arguments(request)
            self._response_urls.use(request.match_info["key"], values)
        except SlackError as refused:
            self._api.delivery.record("from_app", "response_url", refused.body(), refused.code)
            status = refused.status if refused.status != 200 else 400
            return web.json_response(refused.body(), status=status)
        self._api.delivery.record("from_app", "response_url", values, "ok")
        return web.Response(text="ok")

    async def upload(self, request: web.Request) -> web.StreamResponse:
        """Receive the content of a file."""
        return await self._with_faults(request, "upload", lambda: self._upload(request))

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        content = await _file_content(request)
        try:
            stored = self._api.files.store_content(request.match_info["key"], content)
        except SlackError as refused:
            return web.json_response(refused.body(), status=refused.status)
        return web.Response(text=f"OK - {stored.length}")

    async def download(self, request: web.Request) -> web.StreamResponse:
        """Serve a file's url_private. Without a valid token Slack returns its sign-in page with status 200."""
        return await self._with_faults(request, "download", lambda: self._download(request))

    async def _download(self, request: web.Request) -> web.StreamResponse:
        token = _token(request, {}) or ""
        allowed = hmac.compare_digest(token.encode(), self._api.bot_token.encode())
        if not allowed or not self._api.manifest.has_scope("files:read"):
            return web.Response(text="<!doctype html><title>Sign in</title>Sign in", content_type="text/html")
        stored = self._api.files.get(request.match_info["id"])
        if stored is None:
            return web.Response(status=404, text="No such file.")
        return web.Response(body=stored.content, content_type="application/octet-stream")

    async def _with_faults(
        self, request: web.Request, name: str, do: Callable[[], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        fault = self._faults.take(name)
        if fault is None:
            return await do()
        self._api.delivery.record("from_app", name, {}, f"fault: {fault.kind}")
        if fault.kind == "status":
            return _status(fault)
        if fault.kind == "error":
            return web.json_response({"ok": False, "error": fault.error})
        if fault.kind == "slow":
            await asyncio.sleep(fault.seconds)
        if fault.kind == "late":
            await request.read()  # before the connection is closed
            _abort(request)
        if fault.until is not None:
            await fault.until.wait()
        if fault.kind == "lose_request":
            return _abort(request)
        response = await do()
        return _abort(request) if fault.kind == "lose_answer" else response


async def arguments(request: web.Request) -> Json:
    """Arguments of a call, from the query and a form or JSON body."""
    values: Json = dict(request.query)
    if request.content_type == "application/json":
        try:
            body = json.loads(await request.text() or "{}")
        except ValueError:
            raise SlackError("invalid_json") from None
        if not isinstance(body, dict):
            raise SlackError("json_not_object")
        return {**values, **{key: value for key, value in body.items() if value is not None}}
    form = await request.post()
    return {**values, **{key: value for key, value in form.items() if isinstance(value, str)}}


async def _file_content(request: web.Request) -> bytes:
    if not request.content_type.startswith("multipart/"):
        return await request.read()
    form = await request.post()
    for value in form.values():
        if isinstance(value, web.FileField):
            return value.file.read()
    return b""


def error_response(refused: SlackError) -> web.Response:
    """Response for a Slack error, with Retry-After if rate limited."""
    headers = {} if refused.retry_after_s is None else {"Retry-After": str(refused.retry_after_s)}
    return web.json_response(refused.body(), status=refused.status, headers=headers)


def _status(fault: Fault) -> web.Response:
    if fault.status == 429:
        return error_response(SlackError("ratelimited", status=429, retry_after_s=fault.retry_after_s))
    return web.Response(status=fault.status, text="Injected fault.")


def _abort(request: web.Request) -> web.StreamResponse:
    """Close the connection instead of responding."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _token(request: web.Request, values: Json) -> str | None:
    named = values.pop("token", None)
    header = request.headers.get("Authorization", "")
    if header.startswith("Bearer "):
        return header.removeprefix("Bearer ").strip()
    return str(named) if named else None


def _parsed_json(value: object) -> object:
    """Parse blocks sent as JSON text in a form, for the developer panel."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value
