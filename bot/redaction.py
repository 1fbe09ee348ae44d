"""What a channel or a person may see of an object, by clearance. Pure; text leaves only through here (`slack.md 2`)."""

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from core.models import OBJECT_TYPES, TLP_NAMES, Action, Alert, Artifact, Case, Kind, Log, Task

CLEAR = 0
RED = 3
MASK = "[withheld]"
SHORTEST_MASKED = 3  # characters: masking every "a" because an observable is called "a" helps nobody


def may_see(clearance: int, tlp: int) -> bool:
    """Whether something of this TLP may be shown to this clearance."""
    return tlp <= clearance


def withheld(tlp: int) -> str:
    """What stands in place of details."""
    return f"details withheld (TLP:{TLP_NAMES[min(max(tlp, CLEAR), RED)].upper()})"


def kind_of(object_type: str) -> Kind:
    """`alert` for `Alert`: the kind of an action's target."""
    kinds: Mapping[str, Kind] = {name: kind for kind, name in OBJECT_TYPES.items()}
    return kinds.get(object_type, "alert")


@dataclass(frozen=True)
class Subject:
    """What an action runs on, as far as cards show it. `root_id` is the alert or case that it belongs to."""

    kind: Kind
    id: str
    title: str
    tlp: int
    pap: int = 2
    severity: int = 0
    link: str = ""
    root_id: str = ""
    artifacts: tuple[Artifact, ...] = field(default=(), repr=False)
    above_tlp: int = CLEAR  # of the parents that a responder is given with it

    @staticmethod
    def alert(alert: Alert) -> "Subject":
        link, artifacts = alert.external_link or "", tuple(alert.artifacts)
        return Subject("alert", alert.id, alert.title, alert.tlp, alert.pap, alert.severity, link, alert.id, artifacts)

    @staticmethod
    def case(case: Case) -> "Subject":
        return Subject("case", case.id, case.title, case.tlp, case.pap, case.severity, root_id=case.id)

    @staticmethod
    def task(task: Task, case: Case | None) -> "Subject":
        """A task takes TLP and PAP from its case (`semantics.md 2`); not known means the highest."""
        return _under(case, Subject("case_task", task.id, task.title, RED, RED))

    @staticmethod
    def log(log: Log, case: Case | None) -> "Subject":
        """A log, named by its first line."""
        return _under(case, Subject("case_task_log", log.id, log.message.partition("\n")[0], RED, RED))

    @staticmethod
    def artifact(artifact: Artifact, case: Case | None = None) -> "Subject":
        """An artifact has its own TLP and its case's PAP."""
        title = f"{artifact.data_type} {artifact.label}"
        if case is None:
            return Subject("case_artifact", artifact.id, title, artifact.tlp, RED, root_id=artifact.id, above_tlp=RED)
        return Subject("case_artifact", artifact.id, title, artifact.tlp, case.pap, root_id=case.id, above_tlp=case.tlp)

    @staticmethod
    def unknown(action: Action) -> "Subject":
        """What an action runs on when it can't be read (any more): nothing of it is shown."""
        return Subject(kind_of(action.object_type), action.object_id, "", RED, RED, root_id=action.object_id)


def _under(case: Case | None, subject: Subject) -> Subject:
    if case is None:
        return Subject(subject.kind, subject.id, subject.title, RED, RED, root_id=subject.id)
    return Subject(subject.kind, subject.id, subject.title, case.tlp, case.pap, case.severity, root_id=case.id)


@dataclass(frozen=True)
class RedactedView:
    """What one clearance may see of one subject; the only way from its words to a payload."""

    subject: Subject
    clearance: int

    @property
    def is_open(self) -> bool:
        """Whether the subject's own words may be shown."""
        return may_see(self.clearance, self.subject.tlp)

    @property
    def shows_reports(self) -> bool:
        """Whether a report may be shown: its responder was given artifacts and parents, so the highest counts."""
        return may_see(self.clearance, self.highest)

    @property
    def highest(self) -> int:
        """The highest TLP among the subject, its artifacts, and what it belongs to."""
        return max(self.subject.tlp, self.subject.above_tlp, *(a.tlp for a in self.subject.artifacts))

    def text(self, words: str) -> str:
        """These words of the subject; hidden artifacts are masked where a title or a tag repeats them."""
        if not self.is_open:
            return withheld(self.subject.tlp)
        return _masked(
            words, [t for a in self.subject.artifacts if not may_see(self.clearance, a.tlp) for t in a.texts]
        )

    def title(self) -> str:
        """The subject's title, or that it is withheld."""
        return self.text(self.subject.title)

    def link(self) -> str:
        """The subject's address, unless it holds what may not be shown, as it stands or percent-encoded."""
        if not self.is_open:
            return ""
        told = unquote(self.subject.link)
        return self.subject.link if self.text(told) == visible(told) else ""

    def report(self, words: str) -> str:
        """Words that a responder made of the subject: withheld whole, or shown whole."""
        return words if self.shows_reports else withheld(self.highest)

    def artifacts(self) -> Sequence[Artifact]:
        """The artifacts that may be shown."""
        return [a for a in self.subject.artifacts if self.is_open and may_see(self.clearance, a.tlp)]

    def hidden(self) -> int:
        """How many artifacts may not be shown."""
        return len(self.subject.artifacts) - len(self.artifacts())

    @property
    def fingerprint(self) -> str:
        """A digest of what is withheld: a message that was made under another one is not true any more."""
        own = None if self.is_open else self.subject.tlp
        reports = None if self.shows_reports else self.highest
        masked = (
            sorted({t for a in self.subject.artifacts if not may_see(self.clearance, a.tlp) for t in a.texts})
            if self.is_open
            else []
        )
        return hashlib.sha256(json.dumps([own, reports, masked]).encode()).hexdigest()


# --- masking --------------------------------------------------------------------------------------------------------

_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn"}  # characters that nobody sees, and that Slack would be sent without
_OTHER_SPELLINGS: Mapping[str, str] = {  # of one character, as people defang or addresses encode it
    ".": r"(?:\[\.\]|\(\.\)|\{\.\}|\[dot\]|\(dot\)|%2e|\.)",
    "@": r"(?:\[@\]|\(@\)|\[at\]|\(at\)|%40|@)",
    ":": r"(?:\[:\]|%3a|:)",
    "/": r"(?:%2f|/)",
}
_SCHEME = re.compile(r"(?i)^(?:h(?:tt|xx|\*\*)p(s?)|f(?:t|x)p(s?))(?=:)")
_ANY_SCHEME = r"(?:h(?:tt|xx|\*\*)ps?|f(?:t|x)ps?)"


def visible(words: str) -> str:
    """Without the characters that nobody sees: with them a secret would not be found, and be shown without them."""
    return "".join(c for c in words if c in "\n\t" or unicodedata.category(c) not in _HIDDEN)


def _masked(words: str, hidden: Sequence[str]) -> str:
    """Without what is hidden, in any letters, also where somebody wrote it defanged or with unseen characters in it."""
    words = visible(words)
    secrets = {secret for data in hidden for secret in _secrets(visible(data).strip())}
    for secret in sorted((s for s in secrets if len(s) >= SHORTEST_MASKED), key=len, reverse=True):
        words = _pattern(secret).sub(MASK, words)
    return words


def _secrets(data: str) -> Iterator[str]:
    """The data itself, and of an address the host that it leads to."""
    yield data
    plain = _refanged(data)
    if "://" in plain:
        with suppress(ValueError):  # not an address after all
            yield urlsplit(plain).hostname or ""


def _refanged(data: str) -> str:
    for character, spelling in _OTHER_SPELLINGS.items():
        data = re.sub(spelling.replace("%2f|", "").replace("%3a|", ""), character, data, flags=re.IGNORECASE)
    return data.replace("[://]", "://").replace("[:]//", "://")


def _pattern(secret: str) -> re.Pattern[str]:
    plain = _refanged(secret)
    scheme = _SCHEME.match(plain)
    rest = plain[scheme.end() :] if scheme else plain
    parts = [_ANY_SCHEME] if scheme else []
    if rest.startswith("://"):
        parts.append(r"(?:\[://\]|\[:\]//|%3a%2f%2f|://)")
        rest = rest[3:]
    for piece in re.split(r"(\s+)", rest):
        parts.append(r"\s+" if piece.isspace() else "".join(_OTHER_SPELLINGS.get(c, re.escape(c)) for c in piece))
    return re.compile("".join(parts), re.IGNORECASE)
