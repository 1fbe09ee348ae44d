"""Sample and random alerts, actions and responders, hostile ones among them."""

import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from bot.features.alerts.views.card import alert_card
from bot.features.runs.views.request import RunRequest
from bot.message import ButtonIds, Intent, Message
from bot.settings import BotSettings, bot_settings
from bot.slack_emulator.limits import problems
from core.common.settings_file import read_sections
from core.models import (
    Action,
    Alert,
    Approval,
    Artifact,
    Case,
    Document,
    InputTitle,
    OfferedResponder,
    Policy,
    RunTarget,
)

NOW = 1_763_690_400_000
FULL = json.dumps({f"input {n}": "x & y " * 100 for n in range(20)})
HOSTILE = "<!channel> <@U0BOSS> </blocks> *_~`| & ‮gpj.exe \u200b\n\n> " * 200


def artifact(number: int = 1, **more: Any) -> Artifact:
    base = {"id_": f"~{900 + number}", "id": f"~{900 + number}", "created_by": "siem@x", "created_at": NOW}
    return Artifact(**{**base, "data_type": "ip", "data": f"203.0.113.{number}", **more})


def alert(**more: Any) -> Alert:
    base: dict[str, Any] = {
        "id_": "~12",
        "id": "~12",
        "created_by": "siem@soc.example",
        "created_at": NOW - 60_000,
        "type": "siem",
        "source": "suricata",
        "source_ref": "8257b4",
        "title": "ET MALWARE Beacon to known C2",
        "description": "Beacon every 60 s",
        "severity": 3,
        "date": NOW - 90_000,
        "tags": ["c2", "host:web-3"],
        "tlp": 2,
        "pap": 2,
        "custom_fields": {},
        "artifacts": [artifact()],
    }
    return Alert(**{**base, **more})


def case(**more: Any) -> Case:
    base: dict[str, Any] = {"id_": "~30", "id": "~30", "created_by": "anna@soc.example", "created_at": NOW - 60_000}
    own = {"case_id": 1, "title": "C2", "description": "", "severity": 3, "start_date": NOW - 60_000, "owner": "anna"}
    return Case(**{**base, **own, "tlp": 2, "pap": 2, "tags": [], "custom_fields": {}, **more})


def document(of: Alert, *actions: Action) -> Document:
    return Document(id=of.id, alert=of, actions=list(actions))


def report(**more: Any) -> str:
    return json.dumps({"summary": {"taxonomies": []}, "full": {}, "success": True, "message": "", **more})


def action(number: int = 40, **more: Any) -> Action:
    base: dict[str, Any] = {
        "id_": f"~{number}",
        "id": f"~{number}",
        "responder_id": "close_1_0",
        "responder_name": "CloseFalsePositive",
        "responder_definition": "close_1_0",
        "engine_id": "local",
        "engine_job_id": "job-1",
        "object_type": "Alert",
        "object_id": "~12",
        "status": "Waiting",
        "start_date": NOW - 30_000,
        "operations": "[]",
        "parameters": "{}",
        "report": "{}",
        "created_by": "anna@soc.example",
        "created_at": NOW - 30_000,
    }
    base["outcome"] = next(iter(OUTCOMES[more.get("status", "Waiting")]), None)
    return Action(**{**base, **more})


def ended(status: str = "Success", message: str = "Marked as read.", number: int = 40, **more: Any) -> Action:
    base = {"dispatched_at": NOW - 30_000, "end_date": NOW - 26_800, "report": report(message=message)}
    return action(number, **{"status": status, **base, **more})


def awaiting(agreed: tuple[str, ...] = (), needed: int = 1, **more: Any) -> Action:
    approval = Approval(needed=needed, approved_by=list(agreed), expires_at=NOW + 3_600_000)
    return action(approval=approval, **more)


def request(*object_ids: str, **more: Any) -> RunRequest:
    """A run on these alerts."""
    targets = tuple(RunTarget(object_type="alert", object_id=one) for one in object_ids or ("~12",))
    return RunRequest(targets, "CloseFalsePositive_1_0", **more)


def responder(name: str = "CloseFalsePositive", **more: Any) -> OfferedResponder:
    base: dict[str, Any] = {
        "id": f"{name}_1_0",
        "name": name,
        "version": "1.0",
        "description": f"What {name} does",
        "data_type_list": ["thehive:Alert"],
        "engine_ids": ["local"],
        "verdict": "can_run",
        "reasons": [],
        "policy": Policy(),
    }
    return OfferedResponder(**{**base, **more})


def button(intent: Intent) -> str:
    """A unique opaque id of realistic length."""
    return hashlib.sha256(repr(intent).encode()).hexdigest()[:32]


# --- random ones ----------------------------------------------------------------------------------------------------

OUTCOMES: Mapping[str, tuple[str, ...]] = {
    "Success": ("succeeded",),
    "Failure": ("failed", "denied", "expired", "stopped"),
    "Deleted": ("cancelled",),
    "Waiting": (),
    "InProgress": (),
}
foreign_text = st.one_of(st.text(max_size=60), st.sampled_from([HOSTILE, "x" * 10_000, "&" * 9_000, "```", "<!here>"]))
levels = st.integers(0, 3)


@cache  # making a strategy, as for each example, takes longer than drawing from it
def _marked(mark: str) -> st.SearchStrategy[str]:
    return foreign_text.map(lambda text: f"{mark}{text}{mark}")


@st.composite
def artifacts(draw: st.DrawFn, mark: Mapping[int, str]) -> Artifact:
    tlp = draw(levels)
    kind = draw(st.sampled_from(["ip", "url", "domain", "hash", "other", "mail"]))
    data = draw(_marked(mark[tlp]))
    return artifact(draw(st.integers(1, 90)), data=data, data_type=kind, tlp=tlp, message=draw(_marked(mark[tlp])))


def _loud(text: str) -> str:
    """ASCII letters in capitals; others may change the text's length."""
    return "".join(c.upper() if c.isascii() else c for c in text)


@st.composite
def alerts(draw: st.DrawFn, mark: Mapping[int, str], person: str = "") -> Alert:
    """An alert whose own words carry `mark[tlp]`, its artifacts the mark of their own TLP, its people `person`."""
    login = f"{person}ben@soc.example"
    tlp = draw(levels)
    found = draw(st.lists(artifacts(mark), max_size=6, unique_by=lambda a: a.id))
    # Titles, tags and links often repeat an observable in another case.
    repeated = [_loud(a.label) if draw(st.booleans()) else a.label for a in found]
    own = st.one_of(_marked(mark[tlp]), *([st.sampled_from(repeated)] if repeated else []))
    return alert(
        title=draw(own),
        description=draw(own),
        source=draw(own),
        source_ref=draw(own),
        type=draw(own),
        tags=draw(st.lists(own, max_size=6)),
        severity=draw(st.integers(1, 4)),
        tlp=tlp,
        pap=draw(levels),
        status=draw(st.sampled_from(["New", "Ignored", "Imported", "Updated"])),
        case=draw(st.sampled_from([None, "~77"])),
        external_link=draw(st.one_of(st.none(), own, own.map(lambda s: f"https://siem.example/{s}"))),
        custom_fields=draw(st.dictionaries(own, st.fixed_dictionaries({"string": own}), max_size=3)),
        artifacts=found,
        created_by=login,
        assignee=draw(st.sampled_from([None, login])),
        updated_by=draw(st.sampled_from([None, login])),
        updated_at=draw(st.sampled_from([None, NOW - 5_000])),
        summary=draw(st.one_of(st.none(), own)),
        closed_by=draw(st.sampled_from([None, login])),
    )


@st.composite
def actions(draw: st.DrawFn, mark: str = "", inputs_mark: str = "", name_mark: str = "", person: str = "") -> Action:
    """An action in any state; what its responder said carries `mark`, what its requester gave `inputs_mark`."""
    login = f"{person}cleo@soc.example"
    number = draw(st.integers(40, 400))
    status = draw(st.sampled_from(["Waiting", "InProgress", "Success", "Failure", "Deleted"]))
    text = _marked(mark)
    approval = draw(
        st.one_of(
            st.none(),
            st.builds(
                Approval,
                needed=st.integers(1, 3),
                approved_by=st.lists(st.just(login), max_size=2),
                expires_at=st.integers(NOW - 100_000, NOW + 100_000),
            ),
        )
    )
    over = status not in ("Waiting", "InProgress")
    operations = draw(st.lists(st.fixed_dictionaries({"type": st.just("AddTagToAlert"), "tag": text}), max_size=4))
    full = draw(st.one_of(text, st.fixed_dictionaries({"message": text, "rows": st.lists(text, max_size=3)})))
    taxonomy = {"namespace": draw(text), "predicate": "is", "value": draw(text), "level": "info"}
    words = report(message=draw(text), full=full, summary={"taxonomies": [taxonomy] * draw(st.integers(0, 12))})
    given = _marked(inputs_mark)
    value = st.one_of(given, st.integers(), st.lists(given, max_size=3), st.dictionaries(given, given, max_size=2))
    inputs = draw(st.dictionaries(given, value, max_size=9))
    return action(
        number,
        parameters=draw(st.sampled_from([json.dumps(inputs), None, "no json", "[1]"])),
        note=draw(st.one_of(st.none(), given)),
        responder_name=draw(_marked(name_mark)),
        responder_title=draw(st.one_of(st.just(""), _marked(name_mark))),
        inputs=[
            InputTitle(name=name, title=draw(foreign_text), type=draw(st.sampled_from(["string", "choices", "user"])))
            for name in inputs
            if draw(st.booleans())
        ],
        created_by=login,
        ended_by=draw(st.sampled_from([None, login])) if over else None,
        outcome=draw(st.sampled_from(OUTCOMES[status]) if over else st.none()),
        dispatched_at=draw(st.sampled_from([None, NOW - 20_000])),
        status=status,
        approval=approval,
        report=draw(st.sampled_from([words, "{}", "no json", "[]"])) if over else "{}",
        operations=json.dumps(operations) if over else "[]",
        end_date=NOW if over else None,
    )


@st.composite
def responders(draw: st.DrawFn) -> OfferedResponder:
    return responder(
        draw(foreign_text.filter(bool)),
        id=draw(st.text(min_size=1, max_size=300)),
        description=draw(foreign_text),
        verdict=draw(st.sampled_from(["can_run", "cannot_run", None])),
        reasons=draw(st.lists(foreign_text, max_size=3)),
        policy=draw(st.builds(Policy, confirm=foreign_text, approval=st.integers(0, 2))),
    )


def intents_in(render: Callable[[ButtonIds], object]) -> tuple[Intent, ...]:
    """What the buttons of a card mean, each once."""
    intents: dict[Intent, None] = {}

    def note(intent: Intent) -> str:
        intents[intent] = None
        return "-"

    render(note)
    return tuple(intents)


def load(file: Path | None, environment: Mapping[str, str]) -> BotSettings:
    """The bot's settings of a file (None: the default one, if it exists) and of the environment."""
    return bot_settings(read_sections(file, environment))


def card(*actions: Any, clearance: int = 2, **more: Any) -> Message:
    return alert_card(alert(**more), actions, clearance=clearance, button=button)


def texts_of(message: Message) -> list[str]:
    """The texts of a message's blocks, without those of buttons."""
    found: list[str] = []
    for block in message.blocks:
        parts = [block.get("text"), *block.get("fields", []), *block.get("elements", [])]
        found += [
            p["text"]
            for p in parts
            if "action_id" not in (p or {}) and isinstance(p, dict) and isinstance(p.get("text"), str)
        ]
    return found


def fine(message: Message) -> None:
    assert message.text.strip()
    assert len(message.text) <= 4000
    assert problems("message", message.payload()) == []


def fine_view(view: Mapping[str, Any]) -> None:
    assert problems("modal", view) == []
