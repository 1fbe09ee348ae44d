"""An alert of a source in the database: made the first time, then counted (core/docs/sources.md#repeats)."""

from typing import Any, Literal

from core.common.database import Transaction
from core.models import Alert, AlertInput
from core.records import alerts, cases
from core.records.artifacts import expand_artifacts
from core.records.writes import record_event
from core.store import objects, sources, texts

Outcome = Literal["created", "repeated", "resolved"]


def receive(
    tx: Transaction, request: AlertInput, login: str, now: int, *, reopen_after_ms: int, times: int = 1
) -> tuple[Outcome, int]:
    """Store an alert, or count one that its source sends again; with the number in its id.

    A repeat raises the severity and adds observables, and one that does, or of an alert that nobody has changed, also
    takes its title and description. It opens one again that is closed: at once where its sender had resolved it or has
    raised it, after `reopen_after_ms` where a person had closed it.
    """
    alert = _find(tx, request)
    if alert is None:
        alert = alerts.insert(tx, request, login, now, _key(request))
        if times > 1:
            _store(tx, alert.model_copy(update={"count": times, "last_date": now}))
        return "created", alert.number
    counted = alert.model_copy(
        update={"count": (alert.count or 1) + times, "last_date": max(now, alert.last_date or 0), "resolved_by": None}
    )
    more, is_raised = _growth(tx, alert, request, login, now), request.severity > _said(alert)
    if is_raised:
        more |= {"severity": max(request.severity, alert.severity), "source_severity": None}
        more |= {"severity_before": alert.severity, "raised_at": now} if request.severity > alert.severity else {}
    after = counted.model_copy(update=more)
    if _opens(tx, alert, now, 0 if is_raised else reopen_after_ms):
        alerts.save(tx, after.model_copy(update=alerts.with_status(alert, "New")), login, now, before=alert)
    else:
        _store(tx, after)
        if more:
            texts.save(tx, after)
        if not is_raised:
            sources.add_repeated(tx, alert.number, login, now)
    if is_raised:
        record_event(tx, alerts.KIND, "raised", alert.number, alert.number, login, now)
    return "repeated", alert.number


def _said(alert: Alert) -> int:
    """The highest severity that its source has said."""
    return alert.source_severity or alert.severity


def _growth(tx: Transaction, alert: Alert, request: AlertInput, login: str, now: int) -> dict[str, Any]:
    """The observables, and the title and description if they are within the level of the alert, that change it."""
    artifacts = alerts.with_more_artifacts(tx, alert, expand_artifacts(request.artifacts), login, now)
    more: dict[str, Any] = {"artifacts": artifacts} if len(artifacts) > len(alert.artifacts) else {}
    is_more = more or request.severity > _said(alert)
    is_other = request.title != alert.title and alert.updated_by in (None, login)
    if request.tlp <= alert.tlp and (is_more or is_other):
        said = {"title": request.title, "description": request.description}
        more |= {name: text for name, text in said.items() if text != getattr(alert, name)}
    return more


def resolve(tx: Transaction, request: AlertInput, login: str, now: int) -> Outcome | None:
    """Note on an alert that its sender says it is over, and close it if nobody works on it; None if there is none."""
    alert = _find(tx, request)
    if alert is None:
        return None
    _resolve(tx, alert, login, now)
    return "resolved"


def was_made_after(tx: Transaction, request: AlertInput, moment: int) -> bool:
    """Whether this alert is there, and not older."""
    alert = _find(tx, request)
    return alert is not None and alert.created_at > moment


def resolve_number(tx: Transaction, number: int, login: str, now: int) -> None:
    """As `resolve`, for the alert with this number, if it is still there."""
    row = objects.find(tx, alerts.KIND, number)
    if row is not None:
        _resolve(tx, Alert.model_validate_json(row["doc"]), login, now)


def _key(request: AlertInput) -> str:
    return alerts.unique_key(request.type, request.source, request.source_ref, sender=request.source)


def _find(tx: Transaction, request: AlertInput) -> Alert | None:
    row = objects.find_unique(tx, alerts.KIND, _key(request))
    return None if row is None else Alert.model_validate_json(row["doc"])


def _resolve(tx: Transaction, alert: Alert, login: str, now: int) -> None:
    if alert.resolved_by is None:
        resolved = alert.model_copy(update={"resolved_by": alert.source})
        if alert.status == "New" and alert.assignee is None:
            resolved = resolved.model_copy(update={"status": "Ignored"})
        alerts.save(tx, resolved, login, now, before=alert)


def show(tx: Transaction, now: int, *, waited_ms: int, limit: int) -> int:
    """Record an event for alerts that were repeated at least `waited_ms` ago; returns how many."""
    rows = sources.take_repeated(tx, now - waited_ms, limit)
    for row in rows:
        if objects.exists(tx, alerts.KIND, row["alert_id"]):
            record_event(tx, alerts.KIND, "updated", row["alert_id"], row["alert_id"], row["login"], now)
    return len(rows)


def _opens(tx: Transaction, alert: Alert, now: int, reopen_after_ms: int) -> bool:
    if alert.status not in ("Ignored", "Imported"):
        return False
    if alert.case is not None and cases.load_case(tx, int(alert.case[1:])).status == "Open":
        return False
    return alert.resolved_by is not None or now - (alert.updated_at or alert.created_at) >= reopen_after_ms


def _store(tx: Transaction, alert: Alert) -> None:
    """Without an event, and without what searches find: a repeat changes none of that."""
    objects.update(tx, alert.number, alert.to_json())
