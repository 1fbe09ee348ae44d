"""The caller's end of the wire: core's operations as methods that raise core's own errors."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from httpx_aiohttp import AiohttpTransport
from pydantic import TypeAdapter, ValidationError

from core.common.errors import Code, ResponderBotError
from core.models import (
    Action,
    Alert,
    AlertInput,
    ApiModel,
    Artifact,
    ArtifactInput,
    Case,
    CaseInput,
    CaseTemplate,
    CaseTemplateInput,
    EventPage,
    Kind,
    Log,
    LogInput,
    ObjectInContext,
    OfferedResponder,
    Person,
    RunInput,
    Task,
    TaskInput,
)

CONNECTIONS = 100
KEEPALIVE_S = 60.0  # core keeps idle connections for 75 s; the client lets go first, so none is used while it closes
UNANSWERED = "unanswered"
"""Among the details of an error: core gave no answer, so that nobody knows whether it did what it was asked for."""
_ENGINE = "/api/connector/engine"

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=ApiModel)
Json = Mapping[str, Any]


class CoreClient:
    """Core over HTTP, for one API key. Make one and keep it: it holds the connections.

    Every method raises ResponderBotError with core's code and sentence; "unavailable" where core does not answer.
    """

    def __init__(self, url: str, api_key: str, *, timeout_s: float = 10.0) -> None:
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"Authorization": f"Bearer {api_key}"}
        # httpx's words over aiohttp's connections, without httpx.AsyncClient between: there is no redirect, cookie or
        # proxy on the way to core, and its share was half of a call (tests/bench client).
        limits = httpx.Limits(max_connections=CONNECTIONS, keepalive_expiry=KEEPALIVE_S)
        self._transport = AiohttpTransport(limits=limits)

    def as_user(self, login: str) -> "CoreClient":
        """The same client, acting for a user (`X-On-Behalf-Of`, `semantics.md 1`); shares the connections."""
        client = object.__new__(CoreClient)
        client.__dict__.update(self.__dict__)
        client._headers = {**self._headers, "X-On-Behalf-Of": login}
        return client

    async def close(self) -> None:
        """Let go of the connections, those of `as_user` too."""
        await self._transport.aclose()

    async def __aenter__(self) -> "CoreClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- reading ----------------------------------------------------------------------------------------------------

    async def person_by_slack(self, team: str, user: str) -> Person:
        """The user linked to a Slack person (`semantics.md 10`)."""
        return await self._get(Person, f"/api/user/by-slack/{_in_path(team)}/{_in_path(user)}")

    async def current_user(self) -> Person:
        """Who this client acts as."""
        return await self._get(Person, "/api/user/current")

    async def alert(self, alert_id: str) -> Alert:
        """An alert by its id, or by `type;source;sourceRef`."""
        return await self._get(Alert, f"/api/alert/{_in_path(alert_id)}")

    async def case(self, case_id: str) -> Case:
        return await self._get(Case, f"/api/case/{_in_path(case_id)}")

    async def task(self, task_id: str) -> Task:
        return await self._get(Task, f"/api/case/task/{_in_path(task_id)}")

    async def log(self, log_id: str) -> Log:
        return await self._get(Log, f"/api/case/task/log/{_in_path(log_id)}")

    async def artifact(self, artifact_id: str) -> Artifact:
        return await self._get(Artifact, f"/api/case/artifact/{_in_path(artifact_id)}")

    async def object_in_context(self, kind: Kind, object_id: str) -> ObjectInContext:
        """An object as a responder gets to see it, with its parents and the levels that hold for it."""
        return await self._get(ObjectInContext, f"{_ENGINE}/object/{kind}/{_in_path(object_id)}")

    async def case_template(self, id_or_name: str) -> CaseTemplate:
        return await self._get(CaseTemplate, f"/api/case/template/{_in_path(id_or_name)}")

    async def search(
        self, path: str, query: Json | None = None, range: str = "all", sort: Sequence[str] = ()
    ) -> tuple[list[dict[str, Any]], int]:
        """Objects that fit a query, and how many there are in all; `path` such as `/api/alert/_search`."""
        params = {"range": range, **({"sort": ",".join(sort)} if sort else {})}
        response = await self._send("POST", path, {"query": dict(query or {})}, params=params)
        found = self._parsed(response, _OBJECTS.validate_json)
        total = response.headers.get("X-Total", "")
        return found, int(total) if total.isdecimal() else len(found)

    # --- writing ----------------------------------------------------------------------------------------------------

    async def create_alert(self, alert: AlertInput | Json) -> Alert:
        return await self._post(Alert, "/api/alert", alert)

    async def create_case(self, case: CaseInput | Json) -> Case:
        return await self._post(Case, "/api/case", case)

    async def add_task(self, case_id: str, task: TaskInput | Json) -> Task:
        return await self._post(Task, f"/api/case/{_in_path(case_id)}/task", task)

    async def add_log(self, task_id: str, log: LogInput | Json) -> Log:
        return await self._post(Log, f"/api/case/task/{_in_path(task_id)}/log", log)

    async def add_artifact(self, case_id: str, artifact: ArtifactInput | Json) -> Artifact:
        return await self._post(Artifact, f"/api/case/{_in_path(case_id)}/artifact", artifact)

    async def mark_alert_read(self, alert_id: str) -> Alert:
        return await self._post(Alert, f"/api/alert/{_in_path(alert_id)}/markAsRead")

    async def mark_alert_unread(self, alert_id: str) -> Alert:
        return await self._post(Alert, f"/api/alert/{_in_path(alert_id)}/markAsUnread")

    async def create_case_from_alert(self, alert_id: str) -> Case:
        return await self._post(Case, f"/api/alert/{_in_path(alert_id)}/createCase")

    async def create_case_template(self, template: CaseTemplateInput | Json) -> CaseTemplate:
        """Raises "exists" where the name is taken (`interface.md 4.3`)."""
        return await self._post(CaseTemplate, "/api/case/template", template)

    # --- responders and actions -------------------------------------------------------------------------------------

    async def responders(self, kind: Kind, object_id: str, explain: bool = False) -> list[OfferedResponder]:
        """What may run on an object; with `explain` also what may not, and why (`semantics.md 4`)."""
        params = {"explain": "true"} if explain else None
        response = await self._send("GET", f"{_ENGINE}/responder/{kind}/{_in_path(object_id)}", params=params)
        return self._parsed(response, _RESPONDERS.validate_json)

    async def actions(self, kind: Kind, object_id: str) -> list[Action]:
        """The actions on an object, newest first."""
        response = await self._send("GET", f"{_ENGINE}/action/{kind}/{_in_path(object_id)}")
        return self._parsed(response, _ACTIONS.validate_json)

    async def action(self, action_id: str, wait_s: float = 0) -> Action:
        """One action with its whole report; waits up to `wait_s` (at most 60) for its next change."""
        params = {"wait": f"{wait_s:g}"} if wait_s else None
        path = f"{_ENGINE}/action/{_in_path(action_id)}"
        return self._parsed(await self._send("GET", path, params=params, wait_s=wait_s), Action.model_validate_json)

    async def search_actions(self, query: Json | None = None, range: str = "all") -> list[Action]:
        params = {"range": range}
        response = await self._send("POST", f"{_ENGINE}/action/_search", {"query": dict(query or {})}, params=params)
        return self._parsed(response, _ACTIONS.validate_json)

    async def run(self, asked: RunInput | Json, idempotency_key: str = "") -> Action:
        """Run a responder (`interface.md 4.4`). Raises "conflict" with `details["action"]` for `onlyIfIdle`."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
        return self._parsed(
            await self._send("POST", f"{_ENGINE}/action", asked, headers=headers), Action.model_validate_json
        )

    async def cancel(self, action_id: str) -> Action:
        return self._parsed(
            await self._send("DELETE", f"{_ENGINE}/action/{_in_path(action_id)}"), Action.model_validate_json
        )

    async def approve(self, action_id: str, message: str = "") -> Action:
        return await self._post(Action, f"{_ENGINE}/action/{_in_path(action_id)}/approve", _said(message))

    async def deny(self, action_id: str, message: str = "") -> Action:
        return await self._post(Action, f"{_ENGINE}/action/{_in_path(action_id)}/deny", _said(message))

    # --- the feed, and how core is ----------------------------------------------------------------------------------

    async def events(self, after: int | None, wait_s: float) -> EventPage:
        """What changed after a number; waits up to `wait_s` (at most 60) if nothing has (`semantics.md 8`)."""
        params = {"wait": f"{wait_s:g}", **({"after": str(after)} if after is not None else {})}
        return self._parsed(
            await self._send("GET", "/api/event", params=params, wait_s=wait_s), EventPage.model_validate_json
        )

    async def health(self) -> dict[str, Any]:
        """`{"status", "parts"}`, also where core is down (`semantics.md 11`)."""
        response = await self._answered("GET", "/health")
        return self._parsed(response, _OBJECT.validate_json)

    # --- on the way ---------------------------------------------------------------------------------------------------

    async def _get(self, model: type[ModelT], path: str) -> ModelT:
        return self._parsed(await self._send("GET", path), model.model_validate_json)

    async def _post(self, model: type[ModelT], path: str, body: ApiModel | Json | None = None) -> ModelT:
        return self._parsed(await self._send("POST", path, body), model.model_validate_json)

    async def _send(
        self,
        method: str,
        path: str,
        body: ApiModel | Json | None = None,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0,
    ) -> httpx.Response:
        response = await self._answered(method, path, body, params=params, headers=headers, wait_s=wait_s)
        if response.status_code >= 400:
            raise error_from_response(response.status_code, response.content)
        return response

    async def _answered(
        self,
        method: str,
        path: str,
        body: ApiModel | Json | None = None,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0,
    ) -> httpx.Response:
        content = None if body is None else _json(body)
        sent = {**self._headers, **(headers or {}), **({"Content-Type": "application/json"} if content else {})}
        timeout = httpx.Timeout(self._timeout_s, read=self._timeout_s + wait_s)
        try:
            request = httpx.Request(
                method,
                self._url + path,
                content=content,
                params=params,
                headers=sent,
                extensions={"timeout": timeout.as_dict()},
            )
            response = await self._transport.handle_async_request(request)
            try:
                await response.aread()
            finally:
                await response.aclose()  # also when it was not read to its end: nobody else closes its connection
            return response
        except httpx.TimeoutException as error:
            # The transport calls each connection that is refused or closed a timeout too; the cause tells them apart.
            cause = error.__cause__
            if cause is None or isinstance(cause, TimeoutError):
                raise self._silent(f"no answer within {self._timeout_s + wait_s:g} s") from error
            number = cause.errno if isinstance(cause, OSError) else None
            raise self._silent(os.strerror(number).lower() if number else str(cause).lower()) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._silent(str(error) or type(error).__name__) from error

    def _silent(self, why: str) -> ResponderBotError:
        sentence = f"Core does not answer at {self._url}; is it running, and is the address right? ({why})"
        return ResponderBotError("unavailable", sentence, details={UNANSWERED: True})

    def _parsed(self, response: httpx.Response, parse: Callable[[bytes], T]) -> T:
        try:
            return parse(response.content)
        except ValidationError as error:
            sentence = f"What answers at {self._url} does not speak core's interface; check the address."
            raise ResponderBotError("unavailable", sentence) from error


_OBJECT = TypeAdapter(dict[str, Any])
_OBJECTS = TypeAdapter(list[dict[str, Any]])
_ACTIONS = TypeAdapter(list[Action])
_RESPONDERS = TypeAdapter(list[OfferedResponder])


_BY_STATUS: Mapping[int, Code] = {
    400: "bad_request",
    401: "authentication",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    409: "conflict",
    410: "gone",
    413: "too_large",
    422: "key_reused",
    500: "internal",
    503: "unavailable",
}
_BY_TYPE: Mapping[tuple[int, str], Code] = {
    (400, "AttributeCheckingError"): "invalid_fields",
    (400, "CreateError"): "exists",
    (404, "AuthenticationError"): "log_not_found",
}
"""Where one status has several codes. A test holds these against the table of `core.api.wire`."""


def error_from_response(status: int, content: bytes) -> ResponderBotError:
    """The error that core raised, from its answer."""
    code = _BY_STATUS.get(status, "unavailable" if status >= 500 else "bad_request")
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("message"), str):
        return ResponderBotError(code, f"Core answered {status} without saying why; is it core at this address?")
    fields = body.get("errors")
    details = {key: value for key, value in body.items() if key not in ("type", "message", "errors")}
    return ResponderBotError(
        _BY_TYPE.get((status, str(body.get("type"))), code),
        body["message"],
        fields=[item for item in fields if isinstance(item, dict)] if isinstance(fields, list) else (),
        details=details,
    )


def _in_path(text: str) -> str:
    """A value as one segment of an address; `.` and `..` would be taken away on the way."""
    if text in ("", ".", ".."):
        raise ResponderBotError("not_found", f"{text!r} names nothing.")
    return quote(text, safe="~", errors="replace")


def _json(body: ApiModel | Json) -> bytes:
    return (body.to_json() if isinstance(body, ApiModel) else json.dumps(body, ensure_ascii=False)).encode(
        "utf-8", "replace"
    )


def _said(message: str) -> Json:
    return {"message": message} if message else {}
