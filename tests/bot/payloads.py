"""One payload of each kind that the bot sends, of a made-up alert."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from bot.clearance import RedactedView, Subject
from bot.features import templates
from bot.features.alerts.views import replies
from bot.features.alerts.views.card import alert_card
from bot.features.alerts.views.close import close_view
from bot.features.approvals import views as approvals
from bot.features.home import views as home
from bot.features.runs.views import inputs, run_form
from bot.features.runs.views.request import RunRequest
from bot.features.undos import views as undos
from bot.message import Message
from core.models import (
    Action,
    Alert,
    Approval,
    Artifact,
    Document,
    Extension,
    Log,
    OfferedResponder,
    Override,
    Parameter,
    Person,
    Policy,
    RunTarget,
    Undo,
)

Payload = tuple[Literal["message", "view"], Mapping[str, Any]]
LINK = "https://example.slack.com/archives/C0123456789/p1700000000000000"
CONFIRM = "Takes the host off the network until somebody puts it back."


def payloads(now_ms: int) -> Mapping[str, Payload]:
    alert = _alert(now_ms)
    subject = Subject.alert(alert)
    seen: Mapping[str, Any] = {"clearance": 2, "button": lambda intent: f"{intent.what}-{intent.object_id[1:]}"}
    waiting = _action("~13", "Waiting", now_ms, approval=_approval(now_ms))
    done = _action("~14", "Success", now_ms, report=_report(True), end_date=now_ms)
    failed = _action("~15", "Failure", now_ms, report=_report(False), end_date=now_ms)
    log = Log(
        id_="~16", id="~16", created_by="anna", created_at=now_ms, message="Told them.", start_date=now_ms, owner="anna"
    )
    request: Mapping[str, Any] = {**seen, "now_ms": now_ms}
    timed = done.model_copy(
        update={"undo": Undo(responder="Release_1_0", status="waiting", at=now_ms, message="Release_1_0 is gone.")}
    )
    extension = Extension(id="~17", asked_by="anna", asked_at=now_ms, approval=_approval(now_ms))
    longer = done.model_copy(update={"undo": Undo(responder="Release_1_0", extension=extension)})
    overriding = waiting.model_copy(update={"override": Override(reason="It spreads.", overrides=[])})
    person = Person(login="ben", profile="analyst", permissions=["manageAction"], clearance=2)
    listed = [home.HomeRun(failed, subject), home.HomeRun(timed, subject)]
    messages: Mapping[str, Message] = {
        "run that was not undone": undos.problem_reply(timed, subject, (), **seen),
        "extension": approvals.later_end_request(longer, subject, **seen),
        "override": approvals.approval_request(overriding, subject, **request),
        "list of runs": home.run_list("Failed", listed, person, button=seen["button"]),
        "card": alert_card(alert, [waiting, done, failed], **seen),
        "approval": approvals.approval_request(waiting, subject, **request),
        "direct approval": approvals.approval_request(waiting, subject, link=LINK, voter="ben", **request),
        "end of a run": replies.end_reply(done, subject, **seen),
        "failed run": replies.end_reply(failed, subject, **seen),
        "task log": replies.task_log_card(log, [done], subject, **seen),
    }
    views = {
        "time of a run": undos.extend_view(
            timed, RedactedView(subject, 2), Policy(undo="Release_1_0"), now_ms, "lea@x"
        ),
        "App Home": home.home_view(
            home.Home(
                [home.HomeRun(waiting, subject, LINK)],
                home.HomeAlerts([home.HomeAlert(subject, now_ms, LINK)], Counter([3])),
                home.HomeAlerts([home.HomeAlert(subject, now_ms, LINK)], Counter([3])),
                [home.HomeRun(_action("~17", "InProgress", now_ms), subject)],
                [home.HomeRun(failed, subject)],
                [home.HomeRun(done, subject)],
            ),
            person,
            button=seen["button"],
        ),
        "run modal": run_form.start_view(_asked(alert), subject, clearance=2),
        "form without inputs": run_form.form_view(
            _asked(alert), _responder(), RedactedView(subject, 2), inputs.Form(())
        ),
        "inputs of a run": run_form.form_view(
            _asked(alert), _responder(), RedactedView(subject, 2), inputs.form(_inputs(), {})
        ),
        "close modal": close_view(Document(id=alert.id, alert=alert, actions=[timed]), RedactedView(subject, 2), ""),
        "template modal": templates.template_view(),
    }
    sent: dict[str, Payload] = {name: ("message", message.payload()) for name, message in messages.items()}
    return sent | {name: ("view", view) for name, view in views.items()}


def _asked(alert: Alert) -> RunRequest:
    return RunRequest((RunTarget(object_type="alert", object_id=alert.id),), "Isolate_1_0")


def _alert(now_ms: int) -> Alert:
    stored = {"created_by": "siem", "created_at": now_ms}
    ip = Artifact(id_="~11", id="~11", data_type="ip", data="192.0.2.45", **stored)
    return Alert(
        id_="~12",
        id="~12",
        type="ids",
        source="suricata",
        source_ref="1",
        title="Beacon to a known server",
        description="A host sends a beacon every 250 s.",
        severity=3,
        date=now_ms,
        tags=["c2"],
        tlp=2,
        pap=2,
        custom_fields={},
        artifacts=[ip],
        external_link="https://siem.example/1",
        **stored,
    )


def _action(id_: str, status: Any, now_ms: int, **more: Any) -> Action:
    base: Mapping[str, Any] = {
        "responder_id": "Isolate_1_0",
        "responder_name": "Isolate_1_0",
        "responder_definition": "Isolate_1_0",
        "engine_id": "local",
        "engine_job_id": "",
        "object_type": "Alert",
        "object_id": "~12",
        "start_date": now_ms,
        "operations": "[]",
        "parameters": '{"minutes": 60, "reason": "lateral movement"}',
        "report": "{}",
        "created_by": "anna",
        "created_at": now_ms,
    }
    outcome = {"Success": "succeeded", "Failure": "failed"}.get(status)
    return Action(id_=id_, id=id_, status=status, outcome=outcome, **{**base, **more})


def _approval(now_ms: int) -> Approval:
    return Approval(needed=1, approved_by=[], expires_at=now_ms + 3_600_000)


def _report(success: bool) -> str:
    taxonomy = {"level": "info", "namespace": "Example", "predicate": "hosts", "value": "1"}
    full = {"host": "web-3"}
    message = "The host is isolated."
    return json.dumps({"success": success, "message": message, "full": full, "summary": {"taxonomies": [taxonomy]}})


def _inputs() -> list[Parameter]:
    """One of each type, with a value where a login isn't needed."""
    options = ["edge", "inner"]
    return [
        Parameter(name="reason", title="Reason", description="It stands in the ticket.", required=True),
        Parameter(name="notes", type="text", default="Seen twice.\nAsked the owner."),
        Parameter(name="minutes", type="number", default=60, minimum=1, maximum=1440.5),
        Parameter(name="force", type="boolean", default=True),
        Parameter(name="sure", type="boolean", required=True),
        Parameter(name="where", type="choice", options=options, default="edge"),
        Parameter(name="who", type="choices", options=options, default=options, maximum=2),
        Parameter(name="until", type="date", default="2026-01-31"),
        Parameter(name="owner", type="user"),
    ]


def _responder() -> OfferedResponder:
    return OfferedResponder(
        id="Isolate_1_0",
        name="Isolate_1_0",
        version="1.0",
        description="Isolates a host",
        data_type_list=["thehive:alert"],
        engine_ids=["local"],
        verdict="can_run",
        reasons=[],
        policy=Policy(confirm=CONFIRM, approval=1),
    )
