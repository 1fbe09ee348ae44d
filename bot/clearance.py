"""What a channel or a person may see of an object, by clearance. Pure; see bot/docs/clearance.md.

All text of an object that goes to Slack passes through here.
"""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TypeVar
from urllib.parse import unquote, urlsplit

import idna

from core.models import OBJECT_TYPES, TLP_NAMES, Action, Alert, Artifact, Case, Document, Kind, Log, Task

SHARED = -1  # the clearance of a channel that another company reads: TLP:CLEAR, and nothing says that more is withheld
CLEAR = 0
RED = 3
MASK = "[withheld]"
T = TypeVar("T")
SHORTEST_MASKED = 3  # characters: masking every "a" because an observable is called "a" helps nobody


def may_see(clearance: int, tlp: int) -> bool:
    return tlp <= max(clearance, CLEAR)


def withheld(tlp: int) -> str:
    """What is shown instead of details."""
    return f"details withheld ({tlp_name(tlp)})"


def tlp_name(level: object) -> str:
    """`TLP:AMBER`; a level that isn't one counts as the nearest."""
    return f"TLP:{TLP_NAMES[min(max(level if isinstance(level, int) else RED, CLEAR), RED)].upper()}"


@dataclass(frozen=True)
class Closing:
    """When (ms) and why an alert or a case was closed, and the login of who closed it; "" if that isn't stored."""

    what: str
    at: int
    why: str = field(repr=False)
    by: str = ""


@dataclass(frozen=True)
class Subject:
    """An object that actions run on, as far as cards show it; a task, log or artifact with what its case gives it."""

    kind: Kind
    id: str
    title: str
    tlp: int
    severity: int = 0
    link: str = ""
    root_id: str = ""  # the alert or case that it belongs to
    artifacts: tuple[Artifact, ...] = field(default=(), repr=False)  # of an alert; an artifact has those of its alert
    parent_tlp: int = CLEAR  # of its case or alert, which a responder gets with it
    parent_title: str = ""  # likewise, of an artifact
    case_tlp: int = CLEAR  # of an alert's case, which runs on its artifacts get
    others: tuple[Artifact, ...] = field(default=(), repr=False)  # of its case, which texts about it may repeat
    closed: Closing | None = None  # that its alert or case is closed
    alert_ids: tuple[str, ...] = ()  # of its case
    case_id: str = ""  # of the case that it is, or is in

    @property
    def clearance(self) -> int:
        """What a person needs to act on it and on its runs, and to read their inputs; core checks the same."""
        return max(self.tlp, self.parent_tlp)

    @staticmethod
    def alert(alert: Alert) -> "Subject":
        link, artifacts, closed = alert.external_link or "", tuple(alert.artifacts), None
        if alert.status == "Ignored":
            at = alert.closed_at or alert.updated_at or alert.created_at  # the last, where core noted none yet
            closed = Closing("Alert", at, alert.summary or "", alert.closed_by or alert.updated_by or "")
        own = Subject("alert", alert.id, alert.title, alert.tlp, alert.severity, link, alert.id, artifacts)
        return replace(own, closed=closed, case_id=alert.case or "")

    @staticmethod
    def case(case: Case) -> "Subject":
        return _part_of(case, "case", case.id, case.title)

    @staticmethod
    def task(task: Task, case: Case) -> "Subject":
        """A task has TLP and PAP of its case."""
        return _part_of(case, "case_task", task.id, task.title)

    @staticmethod
    def log(log: Log, case: Case) -> "Subject":
        """A task log, with TLP and PAP of its case; its title is its first line."""
        return _part_of(case, "case_task_log", log.id, log.message.partition("\n")[0])

    @staticmethod
    def artifact(artifact: Artifact, case: Case) -> "Subject":
        """An artifact of a case: it has its own TLP and the PAP of the case."""
        own = _part_of(case, "case_artifact", artifact.id, artifact_title(artifact))
        return replace(own, tlp=artifact.tlp, parent_tlp=case.tlp, parent_title=case.title)

    def _of_alert(self, artifact: Artifact) -> "Subject":
        """An artifact of this alert: withheld where the alert is, with the alert's hidden artifacts masked in it."""
        return replace(
            self,
            kind="case_artifact",
            id=artifact.id,
            title=artifact_title(artifact),
            tlp=max(self.tlp, artifact.tlp),
            link="",
            parent_tlp=max(self.tlp, self.case_tlp),
            parent_title=self.title,
        )

    def part(self, object_id: str) -> "Subject | None":
        """This alert, or the one of its artifacts with that id; None if it has no such artifact."""
        if object_id == self.id:
            return self
        return next((self._of_alert(artifact) for artifact in self.artifacts if artifact.id == object_id), None)

    @staticmethod
    def in_document(document: Document, object_id: str) -> "Subject | None":
        """An object of a document; None if it isn't there."""
        if document.alert is not None:
            others, case_tlp = tuple(document.other_artifacts), document.case_tlp or CLEAR
            return replace(Subject.alert(document.alert), others=others, case_tlp=case_tlp).part(object_id)
        if document.case is None:
            return None
        subject = Subject._in_case(document, document.case, object_id)
        if subject is None:
            return None
        if not document.is_complete:
            number = f"case {document.case.case_id}"  # its texts may repeat what alerts have that aren't read
            subject = replace(subject, title=number if object_id == document.id else subject.title, parent_title=number)
        others = (*document.artifacts, *document.other_artifacts, *document.alert_artifacts)
        return replace(subject, others=others, alert_ids=tuple(document.alert_ids))

    @staticmethod
    def in_documents(documents: Sequence[Document], object_id: str) -> "Subject | None":
        """Likewise of one of several, a case and its alerts: its texts may repeat what any of the alerts has."""
        found = next(filter(None, (Subject.in_document(one, object_id) for one in documents)), None)
        of_alerts = (artifact for one in documents for artifact in one.alert_artifacts)
        return found and replace(found, others=(*found.others, *of_alerts))

    @staticmethod
    def _in_case(document: Document, case: Case, object_id: str) -> "Subject | None":
        if object_id == document.id:
            return Subject.case(case)
        parts = [
            *(Subject.log(log, case) for log in document.logs if log.id == object_id),
            *(Subject.task(task, case) for task in document.tasks if task.id == object_id),
            *(Subject.artifact(artifact, case) for artifact in document.artifacts if artifact.id == object_id),
        ]
        return next(iter(parts), None)

    @staticmethod
    def of_action(action: Action, *documents: Document) -> "Subject":
        """What an action of one of these documents ran on; nothing of it is shown where that can't be read."""
        kind: Kind = next((kind for kind, name in OBJECT_TYPES.items() if name == action.object_type), "alert")
        unknown = Subject(kind, action.object_id, "", RED, root_id=action.object_id)
        return (Subject.in_documents(documents, action.object_id) or unknown).acted_on(action)

    def acted_on(self, action: Action) -> "Subject":
        """The same for a run on it, which counts as high as all that it acts on; core checks the same."""
        return replace(self, tlp=max([self.tlp, *(one.tlp for one in action.target or ())]))


def artifact_title(artifact: Artifact) -> str:
    """`ip 198[.]51[.]100[.]7`; foreign text, with what may be hidden in it."""
    return f"{artifact.data_type} {artifact_name(artifact)}"


def artifact_name(artifact: Artifact) -> str:
    """Likewise, without its type."""
    target, label = artifact.target, artifact.label
    return defang(in_both_letters(label, target.kind, target.value or label) if target else label, artifact.data_type)


_IN_ASCII = re.compile(r"(?i)(?<![\w.-])[\w.-]{0,255}?\bxn--[\w.-]{1,255}")


def in_both_letters(name: str, kind: str | None, value: str) -> str:
    """`münchen (xn--mnchen-3ya)`: a name, and as programs or as people write its host where that has other letters.

    `value` is its canonical form.
    """
    host = value if kind == "host" else "".join(_IN_ASCII.findall(value)[:1])
    other = next((one for one in (host, _in_own_letters(host)) if one.isascii() != name.isascii()), "")
    return f"{name} ({other})" if other else name


def _in_own_letters(host: str) -> str:
    """The name of a host as people write it; itself where that is no name."""
    with suppress(UnicodeError):  # as are those of idna
        return ".".join(idna.decode(one) if one.lower().startswith("xn--") else one for one in host.split("."))
    return host


def _part_of(case: Case, kind: Kind, id: str, title: str) -> Subject:
    """A case, or what is in it, with TLP, PAP and severity of the case."""
    at, is_closed = case.end_date or case.updated_at or 0, case.status in ("Resolved", "Duplicate")
    closed = Closing("Case", at, case.summary or "") if is_closed else None
    return Subject(kind, id, title, case.tlp, case.severity, root_id=case.id, closed=closed, case_id=case.id)


@dataclass(frozen=True)
class RedactedView:
    """What one clearance may see of one subject."""

    subject: Subject
    clearance: int
    beside: tuple[Artifact, ...] = field(default=(), repr=False)  # of others, which texts about it may repeat

    @property
    def is_open(self) -> bool:
        """Whether the subject's own text may be shown."""
        return may_see(self.clearance, self.subject.tlp)

    @property
    def shows_reports(self) -> bool:
        """Whether reports may be shown: a responder gets the artifacts and the case too, so the highest TLP counts.

        Another company reads none: it may name our servers and accounts.
        """
        return self.clearance != SHARED and may_see(self.clearance, self.highest_tlp)

    @property
    def is_secret(self) -> bool:
        """Whether not even that the subject exists may be shown."""
        return self.clearance == SHARED and not self.is_open

    @property
    def highest_tlp(self) -> int:
        """The highest TLP among the subject, its artifacts and its case.

        For an artifact of a case also among the others: runs on it in an alert got what the alert had.
        """
        others = self.subject.others if self.subject.kind == "case_artifact" else ()
        return max(self.subject.tlp, self.subject.parent_tlp, *(a.tlp for a in (*self.subject.artifacts, *others)))

    def text(self, text: str) -> str:
        """A text of the subject, such as its title or a tag, with hidden artifacts masked in it."""
        if not self.is_open:
            return withheld(self.subject.tlp)
        return _masked(text, self._hidden_texts())

    def tags(self, of: Alert | Case) -> list[str]:
        """Its tags; one that only runs have added counts as high as what they acted on."""
        return [self.text(tag) for tag in of.tags if may_see(self.clearance, of.tag_levels.get(tag, CLEAR))]

    def fields(self, of: Alert | Case) -> dict[str, object]:
        """Its custom fields, likewise."""
        hidden = {name for name, level in of.field_levels.items() if not may_see(self.clearance, level)}
        return {name: value for name, value in of.custom_fields.items() if name not in hidden}

    def title(self) -> str:
        """The title, or that it is withheld; of an artifact its data type and data, defanged."""
        return self.text(self.subject.title)

    def parent_title(self) -> str:
        """The title of the case or alert that an artifact belongs to, or that it is withheld."""
        subject = self.subject
        is_shown = self.is_open and may_see(self.clearance, subject.parent_tlp)
        return self.text(subject.parent_title) if is_shown else withheld(subject.parent_tlp)

    def of(self, action: Action) -> "RedactedView":
        """What this clearance may see of what an action ran on: this subject, or an artifact of this alert."""
        part = self.subject.part(action.object_id)
        return RedactedView(part.acted_on(action) if part else Subject.of_action(action), self.clearance)

    def link(self) -> str:
        """The subject's link; "" if a hidden artifact is in it, also percent-encoded."""
        if not self.is_open:
            return ""
        decoded = unquote(self.subject.link)
        return self.subject.link if self.text(decoded) == visible(decoded) else ""

    def report(self, text: str) -> str:
        """Text that a responder made from the subject: shown or withheld as a whole."""
        return text if self.shows_reports else self._withheld(self.highest_tlp)

    def inputs(self, text: str) -> str:
        """What the requester of a run gave it: people speak of the subject and its case in it, as in a title."""
        if not self.shows_inputs:
            return self._withheld(self.subject.clearance)
        return _masked(text, self._hidden_texts())

    def _withheld(self, tlp: int) -> str:
        return "" if self.clearance == SHARED else withheld(tlp)

    @property
    def shows_inputs(self) -> bool:
        """Whether inputs may be shown, with hidden artifacts masked in them."""
        return may_see(self.clearance, self.subject.clearance)

    def artifacts(self) -> Sequence[Artifact]:
        """The artifacts that may be shown."""
        return [a for a in self.subject.artifacts if self.is_open and may_see(self.clearance, a.tlp)]

    def hidden_count(self) -> int:
        """How many artifacts may not be shown, where that may be said."""
        return len(self.subject.artifacts) - len(self.artifacts()) if self.clearance != SHARED else 0

    def hidden(self) -> list[Artifact]:
        """What is masked in texts of the subject."""
        known = (*self.subject.artifacts, *self.subject.others, *self.beside)
        return [artifact for artifact in known if not may_see(self.clearance, artifact.tlp)]

    def _hidden_texts(self) -> set[str]:
        return {text for artifact in self.hidden() for text in artifact.texts}

    def searchable(self, texts: Iterable[str]) -> str:
        """What of these texts of the subject may be shown, and its visible artifacts, to look for a text in.

        In lower case, and not defanged.
        """
        visible_artifacts = (text for artifact in self.artifacts() for text in artifact.texts)
        return refanged("\n".join(map(self.text, [*texts, *visible_artifacts]))).casefold()

    @property
    def fingerprint(self) -> str:
        """A digest of what is withheld: a message with another one shows too much or too little."""
        own = None if self.is_open else self.subject.tlp
        reports = None if self.shows_reports else self.highest_tlp
        of_parts = None if may_see(self.clearance, self.subject.case_tlp) else self.subject.case_tlp
        masked = sorted(self._hidden_texts()) if self.is_open else []
        is_shared = self.clearance == SHARED  # whose cards say so, each alike
        return hashlib.sha256(json.dumps([own, reports, of_parts, masked, is_shared]).encode()).hexdigest()


# --- masking --------------------------------------------------------------------------------------------------------

_INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn"}  # controls, bidi overrides, zero-width characters, lone surrogates
_SPELLINGS: Mapping[str, str] = {  # patterns for a character as it is, defanged or percent-encoded
    ".": r"(?:\[\.\]|\(\.\)|\{\.\}|\[dot\]|\(dot\)|%2e|\.)",
    "@": r"(?:\[@\]|\(@\)|\[at\]|\(at\)|%40|@)",
    ":": r"(?:\[:\]|%3a|:)",
    "/": r"(?:%2f|/)",
}
_PLAIN_KINDS = {"hash", "filename", "user-agent", "registry", "regexp"}
_SCHEME = re.compile(r"(?i)^(?:h(?:tt|xx|\*\*)p(s?)|f(?:t|x)p(s?))(?=:)")
_DEFANGED_SCHEME = re.compile(r"(?i)\bh(?:xx|\*\*)p(?=s?://)")
_ONE_SPELLING = re.compile(r"[a-hjl-rt-z0-9]+")  # without the letters that some other ones equal in another case
_ANY_SCHEME = r"(?:h(?:tt|xx|\*\*)ps?|f(?:t|x)ps?)"


class _Visible(dict[int, int | None]):
    """What `str.translate` makes of each character, filled as they are met."""

    def __missing__(self, code: int) -> int | None:
        is_shown = chr(code) in "\n\t" or unicodedata.category(chr(code)) not in _INVISIBLE
        return self.setdefault(code, code if is_shown else None)


_VISIBLE = _Visible()


def visible(text: str) -> str:
    """The text without invisible characters. Cards leave them out, so a secret is searched for without them."""
    return text.translate(_VISIBLE)


def _masked(text: str, hidden: Iterable[str]) -> str:
    """The text with the hidden data masked, in any case, also defanged or with invisible characters in it."""
    text = visible(text)
    lowered = text.lower()
    for secret, parts in _searched(frozenset(hidden)):
        if all(part in lowered for part in parts):
            text = _pattern(secret).sub(MASK, text)
    return text


@lru_cache(maxsize=64)
def _searched(hidden: frozenset[str]) -> Sequence[tuple[str, Sequence[str]]]:
    """What hidden data is found by in a text, the longest first, each with what a text must have to be searched."""
    secrets = {secret for data in hidden for secret in _secrets(visible(data).strip())}
    longest = sorted((s for s in secrets if len(s) >= SHORTEST_MASKED), key=len, reverse=True)
    return [(secret, _certain_parts(secret)) for secret in longest]


def _certain_parts(secret: str) -> Sequence[str]:
    """What is in each spelling of it, in lower case."""
    return sorted(set(_ONE_SPELLING.findall(_without_scheme(refanged(secret)).lower())), key=len, reverse=True)[:8]


def _secrets(data: str) -> Iterator[str]:
    """The data itself, and the host of a URL, each in both kinds of letters."""
    plain = refanged(data)
    yield from (data, _in_own_letters(plain))
    if "://" in plain:
        with suppress(ValueError):  # not a URL after all
            yield urlsplit(plain).hostname or ""


def defang(data: str, data_type: str = "") -> str:
    """An observable that nobody can click by mistake, such as `hxxps[://]evil[.]example`."""
    if data_type.lower() in _PLAIN_KINDS:
        return data
    safe = re.sub(r"(?i)\bhttp(s?)(?=:)", r"hxxp\1", re.sub(r"\[(://|[.@])\]", r"\1", data))
    safe = re.sub(r"(?i)\bftp(s?)(?=:)", r"fxp\1", safe)
    return safe.replace("://", "[://]").replace(".", "[.]").replace("@", "[@]")


def refanged(data: str) -> str:
    """An observable as it was before it was defanged."""
    for character, spelling in _SPELLINGS.items():
        data = re.sub(spelling.replace("%2f|", "").replace("%3a|", ""), character, data, flags=re.IGNORECASE)
    return _DEFANGED_SCHEME.sub("http", data.replace("[://]", "://").replace("[:]//", "://"))


def _without_scheme(plain: str) -> str:
    return _SCHEME.sub("", plain)


@lru_cache(maxsize=1024)
def _pattern(secret: str) -> re.Pattern[str]:
    plain = refanged(secret)
    rest = _without_scheme(plain)
    parts = [_ANY_SCHEME] if rest != plain else []
    if rest.startswith("://"):
        parts.append(r"(?:\[://\]|\[:\]//|%3a%2f%2f|://)")
        rest = rest[3:]
    for piece in re.split(r"(\s+)", rest):
        parts.append(r"\s+" if piece.isspace() else "".join(_SPELLINGS.get(c, re.escape(c)) for c in piece))
    return re.compile("".join(parts), re.IGNORECASE)


def side_by_side(seen: Sequence[tuple[T, RedactedView]]) -> list[tuple[T, RedactedView]]:
    """Each of these, with what is hidden of any of them masked in what people say of it."""
    hidden = tuple(artifact for _, view in seen for artifact in view.hidden())
    return [(one, replace(view, beside=hidden)) for one, view in seen]


def view_of_all(views: Sequence[RedactedView]) -> RedactedView:
    """Masks what is hidden of any of these objects in what all their runs get or people say."""
    others = {artifact.id: artifact for view in views for artifact in (*view.subject.artifacts, *view.subject.others)}
    highest = max(views, key=lambda view: max(view.subject.tlp, view.subject.parent_tlp))
    return replace(highest, subject=replace(highest.subject, others=tuple(others.values())))
