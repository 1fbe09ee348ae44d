"""A client of core's HTTP interface, with core's models and errors."""

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cache
from types import TracebackType
from typing import Any, Literal, TypeVar
from urllib.parse import quote

import httpx
from httpx_aiohttp import AiohttpTransport
from pydantic import TypeAdapter, ValidationError

from core.common import logs
from core.common.errors import ERRORS, Code, ResponderBotError
from core.models import (
    MAX_IDS,
    Action,
    Alert,
    AlertInput,
    ApiModel,
    AuditRow,
    Bulk,
    BulkAnswer,
    BulkInput,
    Case,
    CaseInput,
    CaseTemplate,
    CaseTemplateInput,
    ClosedObjects,
    Document,
    DocumentList,
    EventPage,
    Kind,
    Log,
    LogInput,
    Measure,
    ObjectInContext,
    OfferedResponder,
    OpenAlert,
    Permission,
    Person,
    RunInput,
    SlackUsers,
    Task,
    TaskInput,
)

CONNECTIONS = 100
KEEPALIVE_S = 60.0  # less than core's 75 s, so that no connection is used while core closes it
UNANSWERED = "unanswered"
"""A detail of an error: core or its store did not answer, so it is unknown whether it did what was requested."""
_ENGINE = "/api/connector/engine"
HEALTH = "/health"  # which answers also with an error what is wrong

ListedState = Literal["open", "active", "ended", "waiting", "failed"]
T = TypeVar("T")
Json = Mapping[str, Any]


_tls = cache(httpx.create_ssl_context)  # all clients read the certificates of the system once, which takes 20 ms


class CoreClient:
    """A client with one API key. Make one and keep it, since it holds the connections.

    Every method raises ResponderBotError with core's code and message; "unavailable" if core doesn't answer.
    """

    def __init__(self, url: str, api_key: str, *, timeout_s: float = 10.0) -> None:
        self._url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._headers = {"Authorization": f"Bearer {api_key}"}
        self.last_event: int | None = None
        """Number of an event at or after what this client changed last; None before it changed anything."""
        limits = httpx.Limits(max_connections=CONNECTIONS, keepalive_expiry=KEEPALIVE_S)
        transport = AiohttpTransport(verify=_tls(), limits=limits)
        self._http = httpx.AsyncClient(transport=transport)
        self.on_named: Callable[[Json], Awaitable[None]] | None = None
        """Awaited with the names in a response, see `Named`, before it is returned."""

    def as_user(self, login: str, slack_origin: str = "") -> "CoreClient":
        """A client that acts for a user (`X-On-Behalf-Of`) and shares this one's connections.

        `slack_origin` is the team, user and channel of their click, such as `T1:U1:C1`, for the audit.
        """
        client = object.__new__(CoreClient)
        client.__dict__.update(self.__dict__)
        client._headers = {**self._headers, "X-On-Behalf-Of": login}
        if slack_origin:
            client._headers["X-Slack-Origin"] = slack_origin
        client.last_event = None
        return client

    async def close(self) -> None:
        """Close the connections, which clients from `as_user` share."""
        await self._http.aclose()

    async def __aenter__(self) -> "CoreClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- reading ----------------------------------------------------------------------------------------------------

    async def person_by_slack(self, team: str, user: str) -> Person:
        """The user linked to a person in Slack."""
        return await self._ask(Person, "GET", f"/api/user/by-slack/{_quoted(team)}/{_quoted(user)}")

    async def who(self, *, clearance: int = 0, permission: Permission | None = None) -> Sequence[Person]:
        """The first people who may see this TLP and have this permission; for a key that acts for others."""
        params = {"clearance": str(clearance), **({"permission": permission} if permission else {})}
        people = await self._ask(list[Person], "GET", "/api/user/who", params=params)
        if self.on_named is not None:
            await self.on_named({person.login: "" for person in people})
        return people

    async def slack_users(self, login: str) -> SlackUsers:
        """The Slack users that a login is linked to."""
        return await self._ask(SlackUsers, "GET", f"/api/user/{_quoted(login)}/slack")

    async def current_user(self) -> Person:
        """The user that this client acts as."""
        return await self._ask(Person, "GET", "/api/user/current")

    async def alert(self, alert_id: str) -> Alert:
        """An alert by its id, or by `type;source;sourceRef`."""
        return await self._ask(Alert, "GET", f"/api/alert/{_quoted(alert_id)}")

    async def object_in_context(self, kind: Kind, object_id: str) -> ObjectInContext:
        """An object as a responder gets it, with its parents and the levels that count for it."""
        return await self._ask(ObjectInContext, "GET", f"{_ENGINE}/object/{kind}/{_quoted(object_id)}")

    async def case_template(self, id_or_name: str) -> CaseTemplate:
        return await self._ask(CaseTemplate, "GET", f"/api/case/template/{_quoted(id_or_name)}")

    async def search(
        self, kind: type[T], path: str, query: Json | None = None, range: str = "all", sort: Sequence[str] = ()
    ) -> list[T]:
        """Objects that match a query; `path` such as `/api/alert/_search`."""
        params = {"range": range, "count": "false", **({"sort": ",".join(sort)} if sort else {})}
        response = await self.request("POST", path, {"query": dict(query or {})}, params=params)
        return await self._parse(response, list[kind])  # type: ignore[valid-type]

    async def find_alerts(self, text: str) -> list[Alert]:
        """The newest alerts with all words of a text, within what the user may see."""
        return await self._ask(list[Alert], "GET", "/api/alert/_find", params={"text": text})

    async def open_alerts(self, assignee: str) -> list[OpenAlert]:
        """The open alerts of an assignee, or with "" of nobody, that the user may see; the most severe first."""
        return await self._ask(list[OpenAlert], "GET", "/api/alert/_open", params={"assignee": assignee})

    async def open_cases(self, owner: str = "") -> list[Case]:
        """The newest open cases, of an owner or of all."""
        query = {"_and": [{"status": "Open"}, *([{"owner": owner}] if owner else [])]}
        return await self.search(Case, "/api/case/_search", query, "0-100", ["-createdAt"])

    async def tasks_of(self, case_id: str, limit: int) -> list[Task]:
        """The first tasks of a case."""
        query = {"_parent": {"_type": "case", "_query": {"_id": case_id}}}
        return await self.search(Task, "/api/case/task/_search", query, f"0-{limit}", ["order"])

    # --- writing ----------------------------------------------------------------------------------------------------

    async def create_alert(self, alert: AlertInput | Json) -> Alert:
        return await self._ask(Alert, "POST", "/api/alert", alert)

    async def create_case(self, case: CaseInput | Json) -> Case:
        return await self._ask(Case, "POST", "/api/case", case)

    async def add_task(self, case_id: str, task: TaskInput | Json) -> Task:
        return await self._ask(Task, "POST", f"/api/case/{_quoted(case_id)}/task", task)

    async def add_log(self, task_id: str, log: LogInput | Json) -> Log:
        return await self._ask(Log, "POST", f"/api/case/task/{_quoted(task_id)}/log", log)

    async def assign_alert(self, alert_id: str, login: str) -> Alert:
        """Assign the alert to this user; "" for nobody."""
        body = {"assignee": login}
        return await self._ask(Alert, "PATCH", f"/api/alert/{_quoted(alert_id)}", body)

    async def mark_alert_unread(self, alert_id: str) -> Alert:
        return await self._ask(Alert, "POST", f"/api/alert/{_quoted(alert_id)}/markAsUnread")

    async def assign_alerts(self, alert_ids: Sequence[str], login: str) -> None:
        """Assign all these alerts to this user, or none."""
        await self.request("PATCH", "/api/alert/_bulk", {"ids": list(alert_ids), "assignee": login})

    async def close_alerts(self, alert_ids: Sequence[str], summary: str = "") -> None:
        """Close all these alerts, or none; `summary` is why."""
        changes = {"status": "Ignored", "summary": summary}
        await self.request("PATCH", "/api/alert/_bulk", {"ids": list(alert_ids), **changes})

    async def reopen_alerts(self, alert_ids: Sequence[str]) -> None:
        """Open all these closed alerts again, or none."""
        await self.request("PATCH", "/api/alert/_bulk", {"ids": list(alert_ids), "status": "New"})

    async def merge_alerts(self, alert_ids: Sequence[str], case_id: str) -> None:
        """Merge all these alerts into a case, or none."""
        await self.request("POST", "/api/alert/merge/_bulk", {"alertIds": list(alert_ids), "caseId": case_id})

    async def create_case_from_alert(self, alert_id: str, template: str = "") -> Case:
        """Make a case, with the case template of this name; "" for the alert's own template, if it has one."""
        body = {"caseTemplate": template} if template else None
        return await self._ask(Case, "POST", f"/api/alert/{_quoted(alert_id)}/createCase", body)

    async def create_case_template(self, template: CaseTemplateInput | Json) -> CaseTemplate:
        """Raises "exists" if the name is taken."""
        return await self._ask(CaseTemplate, "POST", "/api/case/template", template)

    # --- responders and actions -------------------------------------------------------------------------------------

    async def responders(self, kind: Kind, object_id: str) -> list[OfferedResponder]:
        """The responders for an object, also those that can't run on it, and why."""
        path = f"{_ENGINE}/responder/{kind}/{_quoted(object_id)}"
        return await self._ask(list[OfferedResponder], "GET", path, params={"explain": "true"})

    async def actions(self, kind: Kind, object_id: str) -> list[Action]:
        """The actions on an object, newest first."""
        return await self._ask(list[Action], "GET", f"{_ENGINE}/action/{kind}/{_quoted(object_id)}")

    async def action(self, action_id: str, wait_s: float = 0) -> Action:
        """One action with its whole report; waits up to `wait_s` (at most 60) for its next change."""
        params = {"wait": f"{wait_s:g}"} if wait_s else None
        path = f"{_ENGINE}/action/{_quoted(action_id)}"
        return await self._ask(Action, "GET", path, params=params, wait_s=wait_s)

    async def newest_actions(self, state: ListedState, *, by: str = "", since: int = 0, limit: int) -> list[Action]:
        """The newest actions in a state; `by` a person, not for `waiting`; failed `since` (ms)."""
        params = {"state": state, "by": by, "since": str(since), "limit": str(limit)}
        return await self._ask(list[Action], "GET", f"{_ENGINE}/action/_newest", params=params)

    async def decided_before(self, responder_name: str, ids: Iterable[str]) -> list[Action]:
        """The runs on each target in these objects that somebody denied or undid last, as the user may see."""
        params = {"responder": responder_name, "ids": ",".join(ids)}
        return await self._ask(list[Action], "GET", f"{_ENGINE}/action/_decided", params=params)

    async def run(self, request: RunInput | Json, idempotency_key: str = "") -> Action:
        """Run a responder. With `onlyIfIdle`, raises "conflict" with `details["action"]` if one is still open."""
        return await self._ask(Action, "POST", f"{_ENGINE}/action", request, idempotency_key=idempotency_key)

    async def run_bulk(self, request: BulkInput | Json, idempotency_key: str = "") -> BulkAnswer:
        """Run a responder on up to 100 objects; the response has the outcome for each."""
        return await self._ask(BulkAnswer, "POST", f"{_ENGINE}/action/_bulk", request, idempotency_key=idempotency_key)

    async def bulk(self, bulk_id: str) -> Bulk:
        """The progress of a bulk."""
        return await self._ask(Bulk, "GET", f"{_ENGINE}/action/_bulk/{_quoted(bulk_id)}")

    async def approve_bulk(self, bulk_id: str, shown: Iterable[str] | None = None) -> BulkAnswer:
        """Approve its runs that wait for approval, of them only those that are named; the outcome for each."""
        return await self._decide_bulk(bulk_id, "approve", shown)

    async def deny_bulk(self, bulk_id: str, shown: Iterable[str] | None = None, message: str = "") -> BulkAnswer:
        """Deny them likewise; `message` says why."""
        return await self._decide_bulk(bulk_id, "deny", shown, message)

    async def _decide_bulk(self, bulk_id: str, verb: str, shown: Iterable[str] | None, message: str = "") -> BulkAnswer:
        body = {**_decision(message), **({} if shown is None else {"actions": list(shown)})}
        return await self._ask(BulkAnswer, "POST", f"{_ENGINE}/action/_bulk/{_quoted(bulk_id)}/{verb}", body)

    async def undo(self, action_id: str, parameters: Json | None = None, *, idempotency_key: str = "") -> Action:
        """Undo an action now; returns the run that does so.

        Raises "conflict" if it can't be undone, with `details["action"]` if it is or was undone already.
        """
        body = {"parameters": dict(parameters or {})}
        path = f"{_ENGINE}/action/{_quoted(action_id)}/undo"
        return await self._ask(Action, "POST", path, body, idempotency_key=idempotency_key)

    async def audit(self, object_id: str) -> list[AuditRow]:
        """Who decided what about an object and what belongs to it, oldest first."""
        return await self._ask(list[AuditRow], "GET", f"/api/audit/{_quoted(object_id)}")

    async def measures(
        self, *, target: str = "", by: str = "", responder: str = "", of: Iterable[str] = ()
    ) -> list[Measure]:
        """What is in force: on this target (or these ids), by this person, of this responder, of one of these ids."""
        wanted = {"target": target, "by": by, "responder": responder, "of": ",".join(of)}
        params = {name: value for name, value in wanted.items() if value}
        return await self._ask(list[Measure], "GET", f"{_ENGINE}/measure", params=params)

    async def undo_measure(self, measure_id: str, *, idempotency_key: str = "") -> list[Action]:
        """Undo what is in force on one target; returns the run that does so."""
        path = f"{_ENGINE}/measure/{_quoted(measure_id)}/undo"
        return await self._ask(list[Action], "POST", path, {}, idempotency_key=idempotency_key)

    async def extend_measure(self, measure_id: str, until: int | None, note: str = "") -> Action:
        """Have a measure last until a later time (ms), or (None) until somebody undoes it; `note` says why."""
        body = {"until": until, "note": note}
        return await self._ask(Action, "POST", f"{_ENGINE}/measure/{_quoted(measure_id)}/extend", body)

    async def extend_measures(self, ends: Mapping[str, int | None], note: str = "") -> BulkAnswer:
        """Have several measures last longer likewise, as one request; the outcome for each."""
        return await self._ask(BulkAnswer, "POST", f"{_ENGINE}/measure/_extend", {"ends": dict(ends), "note": note})

    async def end_measure(self, measure_id: str, reason: str) -> list[Action]:
        """Mark a measure as ended, without running anything."""
        return await self._ask(list[Action], "POST", f"{_ENGINE}/measure/{_quoted(measure_id)}/end", {"reason": reason})

    async def cancel(self, action_id: str, message: str = "", *, extension_id: str = "") -> Action:
        return await self._decide(action_id, extension_id, "cancel", message)

    async def approve(self, action_id: str, message: str = "", *, extension_id: str = "") -> Action:
        return await self._decide(action_id, extension_id, "approve", message)

    async def deny(self, action_id: str, message: str = "", *, extension_id: str = "") -> Action:
        return await self._decide(action_id, extension_id, "deny", message)

    async def _decide(self, action_id: str, extension_id: str, verb: str, message: str) -> Action:
        """A decision on a run, or on a later end of it that waits."""
        later_end = f"/undo/{_quoted(extension_id)}" if extension_id else ""
        path = f"{_ENGINE}/action/{_quoted(action_id)}{later_end}/{verb}"
        return await self._ask(Action, "POST", path, _decision(message))

    # --- event feed and health --------------------------------------------------------------------------------------

    async def events(
        self, after: int | None, wait_s: float, *, database: str = "", documents: bool = False, gather_s: float = 0
    ) -> EventPage:
        """Events after a sequence number of that database; waits up to `wait_s` (at most 60) if there are none.

        New alerts alone wait up to `gather_s` (at most 0.1) for more.
        With `documents` the page has the alerts and cases that they are about; it may then have fewer events.
        """
        params = {"wait": f"{wait_s:g}", **({"after": str(after)} if after is not None else {})}
        if documents:
            params["include"] = "documents"
        if database:
            params["database"] = database
        if gather_s:
            params["gather"] = f"{gather_s:g}"
        return await self._ask(EventPage, "GET", "/api/event", params=params, wait_s=wait_s)

    async def documents(self, ids: Iterable[str], *, responders: bool = False) -> DocumentList:
        """The documents of up to 200 objects and actions; `left` has the ids to ask for again.

        With `responders` also which responders can run on each object, and why others can't.
        """
        params = {"ids": ",".join(ids), **({"include": "responders"} if responders else {})}
        return await self._ask(DocumentList, "GET", "/api/document", params=params)

    async def closed(self, ids: Iterable[str]) -> ClosedObjects:
        """Which of up to 200 objects belong to closed alerts and cases, and which are gone."""
        return await self._ask(ClosedObjects, "GET", "/api/closed", params={"ids": ",".join(ids)})

    async def documents_in_pages(self, ids: Iterable[str], *, responders: bool = False) -> AsyncIterator[DocumentList]:
        """The documents of any number of objects and actions, in as many answers as that takes."""
        remaining = list(dict.fromkeys(ids))
        while remaining:
            asked = remaining[:MAX_IDS]
            answer = await self.documents(asked, responders=responders)
            if len(answer.left) >= len(asked):
                raise ResponderBotError("unavailable", "Core answers none of the documents that it is asked for.")
            yield answer
            remaining = [*answer.left, *remaining[len(asked) :]]

    async def alerts_of(self, case: Document, also: Sequence[str] = ()) -> list[Document]:
        """The documents of the alerts of a case on which something is in force, and of others that it has."""
        if not case.alert_ids:
            return []
        in_force = [run_id for measure in await self.measures(of=[case.id]) for run_id in measure.actions]
        pages = self.documents_in_pages([*also, *in_force])
        found = [document async for page in pages for document in page.documents]
        return [one for one in found if one.alert is not None and one.alert.case == case.id]

    async def health(self) -> dict[str, Any]:
        """`{"status", "parts"}`, also if core is down."""
        response = await self.request("GET", HEALTH)
        return await self._parse(response, dict[str, Any])

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _ask(
        self,
        kind: type[T],
        method: str,
        path: str,
        body: ApiModel | Json | None = None,
        *,
        params: Mapping[str, str] | None = None,
        idempotency_key: str = "",
        wait_s: float = 0,
    ) -> T:
        """Core's response, as this type."""
        headers = {"Idempotency-Key": idempotency_key} if idempotency_key else None
        response = await self.request(method, path, body, params=params, headers=headers, wait_s=wait_s)
        return await self._parse(response, kind)

    async def request(
        self,
        method: str,
        path: str,
        body: ApiModel | Json | None = None,
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        wait_s: float = 0,
    ) -> httpx.Response:
        """The response to any request of this user. Raises ResponderBotError."""
        content = None if body is None else _encoded(body)
        all_headers = {**self._headers, **(headers or {}), **({"Content-Type": "application/json"} if content else {})}
        if request_id := logs.request_id():
            all_headers["X-Request-Id"] = request_id
        timeout = httpx.Timeout(self._timeout_s, read=self._timeout_s + wait_s)
        try:
            response = await self._http.request(
                method, f"{self._url}{path}", content=content, params=params, headers=all_headers, timeout=timeout
            )
        except httpx.TimeoutException as error:
            raise self._unreachable(_why_no_answer(error, self._timeout_s + wait_s)) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise self._unreachable(str(error) or type(error).__name__) from error
        if response.status_code >= 400 and path != HEALTH:
            raise error_from_response(response.status_code, response.content)
        last_event = response.headers.get("x-last-event", "")
        if last_event.isascii() and last_event.isdigit():
            self.last_event = int(last_event)
        return response

    def _unreachable(self, reason: str) -> ResponderBotError:
        sentence = f"Core does not answer at {self._url}; is it running, and is the address right? ({reason})"
        return ResponderBotError("unavailable", sentence, details={UNANSWERED: True})

    async def _parse(self, response: httpx.Response, kind: type[T]) -> T:
        named = dict[str, str]()
        try:
            parsed: T = _adapter(kind).validate_json(response.content, context=named)
        except ValidationError as error:
            sentence = f"What answers at {self._url} does not speak core's interface; check the address."
            raise ResponderBotError("unavailable", sentence, details={UNANSWERED: True}) from error
        if self.on_named is not None:
            await self.on_named(named)
        return parsed


_adapter: Callable[[Any], TypeAdapter[Any]] = cache(TypeAdapter)


_CODES: Mapping[tuple[int, str], Code] = {answer: code for code, answer in ERRORS.items()}
_BY_STATUS: Mapping[int, Code] = {status: code for code, (status, _) in reversed([*ERRORS.items()])}


def error_from_response(status: int, content: bytes) -> ResponderBotError:
    code = _BY_STATUS.get(status, "unavailable" if status >= 500 else "bad_request")
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if not isinstance(body, dict) or not isinstance(body.get("message"), str):
        return ResponderBotError(code, f"Core answered {status} without saying why; is it core at this address?")
    fields = body.get("errors")
    details = {key: value for key, value in body.items() if key not in ("type", "message", "errors")}
    if status == 503:  # the store may have committed the change before it failed
        details[UNANSWERED] = True
    return ResponderBotError(
        _CODES.get((status, str(body.get("type"))), code),
        body["message"],
        fields=[item for item in fields if isinstance(item, dict)] if isinstance(fields, list) else (),
        details=details,
    )


def _encoded(body: ApiModel | Json) -> bytes:
    text = body.to_json() if isinstance(body, ApiModel) else json.dumps(body, ensure_ascii=False)
    return text.encode("utf-8", "replace")


def _why_no_answer(error: httpx.TimeoutException, waited_s: float) -> str:
    """What is said of a request that got no answer."""
    # The transport calls each connection that is refused or closed a timeout too; the cause tells them apart.
    cause = error.__cause__
    if cause is None or isinstance(cause, TimeoutError):
        return f"no answer within {waited_s:g} s"
    number = cause.errno if isinstance(cause, OSError) else None
    return (os.strerror(number) if number else str(cause)).lower()


def _quoted(text: str) -> str:
    """A value as one segment of a path. Clients would remove `.` and `..`, so these are "not_found"."""
    if text in ("", ".", ".."):
        raise ResponderBotError("not_found", f"There is no object {text!r}.")
    return quote(text, safe="~", errors="replace")


def _decision(message: str) -> Json:
    return {"message": message} if message else {}
