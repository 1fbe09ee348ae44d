"""Rows of the audit as sentences for people."""

from collections.abc import Callable, Mapping
from typing import Any

from core.audit.trail import CORE, What
from core.authorization import COMMAND_LINE
from core.common.clock import as_time
from core.common.words import count, listed

_Fields = Mapping[str, Any]
_WHY, _SHOWN = ("note", "reason", "message"), ("target", "object", "name", "address", "slack")
"""The texts that a sentence has, those in quotes first."""
_OVERRIDDEN = {"protect": "protection", "rate": "its rate", "rate_per_target": "its rate for the target"}


def sentence(row: _Fields, texts: Mapping[str, str]) -> str:
    """What a row says. `texts` are those that are not erased."""
    said = SENTENCES[row["what"]](row)
    who = {CORE: "Core", COMMAND_LINE.login: "The command line"}.get(row["by"], row["by"])
    through = f" (through {row['through']})" if "through" in row else ""
    more = [f': "{texts[name]}"' for name in _WHY if name in texts]
    more += [f"; {name}: {texts[name]}" for name in _SHOWN if name in texts]
    more += [f"; {name}: erased" for name in sorted(row.get("texts", {}).keys() - texts.keys())]
    return f"{who}{through} {said}{''.join(more)}".strip()


def _run(verb: str) -> Callable[[_Fields], str]:
    return lambda row: f"{verb} {row['object']}, {row['responder']} on {row['on']}"


def _requested(row: _Fields) -> str:
    undoing = f" to undo {row['undoes']}" if "undoes" in row else ""
    overridden = [_OVERRIDDEN.get(rule, rule) for rule in row.get("overrides", ())]
    overriding = f", overriding {listed(overridden)}" if overridden else ""
    needed = f"; it needs {count(row['approvals_needed'], 'approval')}" if "approvals_needed" in row else ""
    return f"asked to run {row['responder']} on {row['on']}{undoing} as {row['object']}{overriding}{needed}"


def _refused(row: _Fields) -> str:
    where = "" if row["object"] == "core" else f" on {row['object']}"
    return f"was refused {'a run of ' + row['responder'] if 'responder' in row else 'a request'}{where}"


def _until(row: _Fields) -> str:
    before, after = (as_time(row[name]) if name in row else "no end" for name in ("before", "after"))
    return f"the end of {row['object']}, {row['responder']} on {row['on']}, from {before} to {after}"


def _measure_ended(row: _Fields) -> str:
    if "action" in row:
        return f"noted that {row['action']} has undone {row['object']}, {row['responder']} on {row['on']}"
    return f"marked {row['object']}, {row['responder']} on {row['on']}, as ended"


def _changed(what: str) -> Callable[[_Fields], str]:
    return lambda row: f"changed the {what} of {row['object']} from {row['before']} to {row['after']}"


def _members(row: _Fields) -> str:
    parts = [f"{verb} {listed(row[key])}" for key, verb in (("added", "adding"), ("removed", "removing")) if key in row]
    return f"changed the group {row['object']}, {' and '.join(parts)}"


def _assigned(row: _Fields) -> str:
    who = "themselves" if row.get("after") == row["by"] else row.get("after")
    return f"assigned {row['object']} to {who}" if who else f"unassigned {row['before']} from {row['object']}"


def _settings(row: _Fields) -> str:
    changed = f"; since the last start {listed(row['changed'])} changed" if "changed" in row else ""
    return f"started on {row['object']}{changed}"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in counts.items())


def _erased(row: _Fields) -> str:
    counts = _counted(row.get("counts", {})) or "texts of the audit"
    to = f"; {row['to']} undoes {listed(row['handed_over'])} from now on" if "to" in row else ""
    return f"erased {row['object']}: {counts}{to}"


SENTENCES: Mapping[What, Callable[[_Fields], str]] = {
    "run.requested": _requested,
    "run.refused": _refused,
    "run.covered": lambda row: f"asked to run {row['responder']} on {row['object']} too",
    "run.approved": lambda row: f"{_run('approved')(row)} ({row['approvals']} of {row['approvals_needed']})",
    "run.denied": _run("denied"),
    "run.expired": _run("ended, as nobody approved it in time,"),
    "run.dispatched": _run("started"),
    "run.cancelled": lambda row: _run("withdrew" if "message" in row.get("texts", {}) else "stopped")(row),
    "run.cancel_withdrawn": _run("withdrew the cancel, which its engine can't carry out, of"),
    "run.ended": lambda row: f"{_run('recorded')(row)}, as {row['outcome']}",
    "undo.started": lambda row: f"started {row['action']}, which undoes {row['object']}",
    "undo.refused": _run("could not undo"),
    "undo.failed": _run("noted that the undo failed of"),
    "undo.moved": lambda row: f"moved {_until(row)}",
    "undo.replaced": lambda row: f"left it to {row['action']} when {row['object']} is undone",
    "undo.doubted": _run("noted that nobody knows whether it is in force:"),
    "extension.requested": lambda row: f"asked to move {_until(row)}",
    "extension.approved": _run("approved more time for"),
    "extension.denied": _run("denied more time for"),
    "extension.cancelled": _run("withdrew the request of more time for"),
    "extension.expired": _run("noted that nobody approved in time more time for"),
    "measure.ended": _measure_ended,
    "bulk.retried": lambda row: f"asked again for what {row['root']} had not done: {row['object']}",
    "alert.status": lambda row: f"{'reopened' if row['after'] == 'New' else 'closed'} {row['object']}",
    "alert.assignee": _assigned,
    "alert.case": lambda row: f"put {row['object']} into the case {row['after']}",
    "request.refused": _refused,
    "login.refused": lambda _: "Somebody without a valid key was refused",
    "user.added": lambda row: f"added the user {row['object']} as {row['profile']} with clearance {row['clearance']}",
    "user.disabled": lambda row: f"disabled the user {row['object']}",
    "user.enabled": lambda row: f"enabled the user {row['object']}",
    "user.profile": _changed("profile"),
    "user.clearance": _changed("clearance"),
    "user.linked": lambda row: f"linked {row['object']} to somebody in Slack",
    "user.unlinked": lambda row: f"removed the link of {row['object']} in Slack",
    "key.made": lambda row: f"made a new key {row.get('name', 'default')} for {row['object']}",
    "key.revoked": lambda row: f"revoked the key {row['name']} of {row['object']}",
    "group.members": _members,
    "host.drained": lambda row: f"had the host {row['object']} take no more runs",
    "host.resumed": lambda row: f"had the host {row['object']} take runs again",
    "settings.loaded": _settings,
    "erased": _erased,
    "pruned": lambda row: f"deleted what [retention] lets go: {_counted(row['counts'])}",
    "audit.pruned": lambda row: f"deleted the rows of the audit up to {row['until']}",
    "backup.restored": lambda row: f"started from a backup of {as_time(row['made_at'])}",
    "audit.read": lambda row: f"read the audit of {row['object']}",
    "audit.exported": lambda row: f"exported the audit, rows {row['first']} to the last",
}
