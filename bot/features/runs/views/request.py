"""A run that somebody asks for, as far as it is chosen; as text, and its options as fields of a form."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, get_args

from pydantic import BeforeValidator, Field, PlainSerializer, TypeAdapter
from pydantic.dataclasses import dataclass

from bot.block_kit import modals, names
from bot.features.runs.views import inputs, undo_state
from bot.message import Block
from core.common.errors import ResponderBotError
from core.models import (
    NOTE_LIMIT,
    OBJECT_TYPES,
    Action,
    BulkInput,
    Kind,
    OfferedResponder,
    OverrideInput,
    RunInput,
    RunTarget,
)

_TIMES = {"duration", "minutes", "hours", "days", "time", "until", "for", "undo_after", "undo_after_minutes"}
TEXT_LIMIT = 3000  # characters that Slack takes as a modal's metadata
_KIND_OR_ID = re.compile(r"[a-z_]+|~[0-9]{1,18}(?:=~[0-9]{1,18}(?:,~[0-9]{1,18})*)?")


def _to_words(targets: Sequence[RunTarget]) -> str:
    """`alert ~1 ~2=~5,~6 case ~3`, so that a hundred targets fit into a modal's metadata."""
    parts: list[str] = []
    kind = ""
    for target in targets:
        if target.object_type != kind:
            parts.append(kind := target.object_type)
        parts.append("=".join(filter(None, [target.object_id, ",".join(target.target)])))
    return " ".join(parts)


def _of_words(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    targets: list[RunTarget] = []
    kind = ""
    for word in _KIND_OR_ID.findall(value):
        if word in get_args(Kind):
            kind = word
        else:
            object_id, _, artifacts = word.partition("=")
            named = {"object_type": kind, "object_id": object_id, "target": artifacts.split(",") if artifacts else []}
            targets.append(RunTarget.model_validate(named))
    return tuple(targets)


@dataclass(frozen=True)
class RunRequest:
    """A run of a responder on one or several objects.

    As text a button's intent holds it, or a modal's metadata. Metadata comes back from Slack, so it has no parameters
    but the logins that no field can show, and core checks all of it.
    """

    targets: Annotated[tuple[RunTarget, ...], BeforeValidator(_of_words), PlainSerializer(_to_words)] = ()
    responder_id: str = ""
    parameters: Mapping[str, Any] = Field(default_factory=dict)
    undo_after_minutes: int | None = None  # None: as the settings say
    override_reason: str | None = None  # why rules are overridden; "" until somebody gives it
    note: str = ""  # why, for whoever sees the run; where rules are overridden, the reason is the note
    again: str = ""  # the run that is repeated
    is_bulk: bool = False  # whether that is a bulk
    anyway: str = ""  # the open run of the same responder beside which it runs
    channel: str = ""  # where somebody asked, so where a message tells how runs on several objects go
    without: str = ""  # that some of several objects are left out, and why

    @property
    def is_several(self) -> bool:
        """Whether core gets it as a bulk."""
        return len(self.targets) > 1 or self.is_bulk

    def to_text(self) -> str:
        return _ADAPTER.dump_json(self, exclude_defaults=True).decode()

    @staticmethod
    def from_text(text: str) -> "RunRequest":
        """What `to_text` wrote; an empty request for any other text."""
        try:
            return _ADAPTER.validate_json(text)
        except ValueError:
            return RunRequest()

    @staticmethod
    def again_of(action: Action) -> "RunRequest":
        """To run the same again; what it was given and why is read where it is known how much of it may be shown."""
        kind = next(kind for kind, name in OBJECT_TYPES.items() if name == action.object_type)
        target = RunTarget(object_type=kind, object_id=action.object_id)
        return RunRequest((target,), action.responder_id, again=action.id)

    def with_typed(self, responder: OfferedResponder, typed: Mapping[str, str]) -> "RunRequest":
        """The request with each `name=value` of a command. Raises ResponderBotError with what is wrong with each."""
        if "note" in typed and inputs.called(responder.parameters or (), "note") is None:
            note, rest = typed["note"].strip(), {name: text for name, text in typed.items() if name != "note"}
            if len(note) > NOTE_LIMIT:
                raise ResponderBotError("bad_request", f"Nothing was run. The note is too long. {_too_long(note)}")
            return replace(self, note=note).with_typed(responder, rest)
        title, policy = names.title(responder), responder.policy
        if not responder.parameters or not responder.can_run:
            if policy.undo and (times := _TIMES & {*map(str.casefold, typed)}):
                asks = f"The form of {title} asks how long: type the command without {min(times)!r}."
                raise ResponderBotError("bad_request", f"Nothing was run. {asks}")
            return replace(self, parameters=dict(typed))
        values, problems = inputs.take_typed(responder.parameters, typed)
        if problems:
            raise ResponderBotError("bad_request", f"{title} was not run. {' '.join(problems)}")
        return replace(self, parameters=values)

    def keeping(self, logins: Mapping[str, str]) -> "RunRequest":
        """The request with no other parameters than these logins; with none if a modal has no room for them."""
        request = replace(self, parameters=logins)
        return request if len(request.metadata()) <= TEXT_LIMIT else replace(self, parameters={})

    def metadata(self) -> str:
        """What a modal keeps: not what its fields show."""
        return replace(self, undo_after_minutes=None, note="").to_text()

    def run_input(self) -> RunInput:
        """What core gets for a run on one object."""
        (target,) = self.targets
        override = OverrideInput(reason=self.override_reason) if self.override_reason else None
        return RunInput(**self._options(), **dict(target), override=override)

    def bulk_input(self) -> BulkInput:
        """What core gets for runs on several objects."""
        retries = self.again if self.is_bulk else None
        return BulkInput(**self._options(), targets=list(self.targets), retries=retries)

    def _options(self) -> dict[str, Any]:
        return {
            "responder_id": self.responder_id,
            "parameters": dict(self.parameters),
            "only_if_idle": not self.anyway,
            "undo_after_minutes": self.undo_after_minutes,
            "note": self.note,
        }


_ADAPTER = TypeAdapter(RunRequest)


# --- the options of any run, beside its inputs ----------------------------------------------------------------------


def time_field(key: str, responder: OfferedResponder, minutes: int | None) -> list[Block]:
    """How long the run lasts, at first as asked for before; that of another `key` is another field."""
    return undo_state.time_field(_undo_block(key), responder.policy, minutes)


def why_field(request: RunRequest, responder: OfferedResponder) -> list[Block]:
    """Why it is run, or why rules are overridden; nothing where the responder asks for a reason and nothing else."""
    if request.override_reason is None:
        hint = "Everybody who sees the run reads this: no secrets."
        field = modals.text_field("note", "Note", initial=request.note, hint=hint)
        asks_why = [parameter.name for parameter in responder.parameters or ()] == ["reason"]
        return [] if asks_why and not request.note else [field]
    hint = "Who approves reads it, and everybody who sees the run."
    why = request.override_reason or request.note
    return [modals.text_field("override", "Why", initial=why, multiline=True, optional=False, hint=hint)]


def submitted_options(view: modals.View, request: RunRequest, key: str) -> tuple[RunRequest, dict[str, str]]:
    """The request with what these fields have, and what is wrong by block id."""
    values, problems = modals.values(view), dict[str, str]()
    reason = values.get("override", "").strip()
    if request.override_reason is not None and not reason:
        problems["override"] = "Say why."
    note = values.get("note", "").strip()
    for block_id, text in (("override", reason), ("note", note)):
        if len(text) > NOTE_LIMIT:  # whoever approves is to read all of it
            problems[block_id] = _too_long(text)
    minutes = undo_state.minutes_of(values.get(_undo_block(key), ""))
    reason_given = reason if request.override_reason is not None else None
    return replace(request, undo_after_minutes=minutes, override_reason=reason_given, note=note), problems


def _too_long(note: str) -> str:
    return f"This has {len(note):,} characters; at most {NOTE_LIMIT} fit."


def _undo_block(key: str) -> str:
    """The block id of the field that says how long a run lasts."""
    return f"undo_after:{key}"
