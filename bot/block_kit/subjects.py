"""How alerts and observables look wherever they are shown: headline, the menu of what can run on them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from bot.block_kit import ids
from bot.block_kit.text import clean, clip_middle, code, foreign, foreign_plain, plain, section
from bot.clearance import MASK, RedactedView, artifact_name, defang, in_both_letters, withheld
from bot.message import Block, ButtonIds, Intent
from core.models import OBJECT_TYPES, SEVERITY_NAMES, Artifact, Kind, TargetArtifact

TITLE_LIMIT = 300  # characters
SHORT_TITLE = 80  # where it is beside what is decided or read, and so not on a card or in Details
MENU_LIMIT = 40  # of an observable on its menu


SIGNS = ("", "🔵", "🟡", "🟠", "🔴")  # by severity, beside its name


def headline(view: RedactedView, hint: str = "", limit: int = TITLE_LIMIT) -> Block:
    """The severity and the linked title; if the title is withheld, the id and `hint`."""
    subject = view.subject
    word = f"{SIGNS[subject.severity]} *{SEVERITY_NAMES[subject.severity].upper()}*  " if subject.severity else ""
    if not view.is_open:
        return section(f"{word}{subject.id} · {withheld(subject.tlp)}" + (f": {hint}" if hint else ""))
    # A `|` in a link's label would end it, a `*` its bold.
    title = (foreign(clip_middle(view.title(), limit), TITLE_LIMIT) or "(no title)").replace("|", "¦").replace("*", "∗")
    url = safe_link(view.link())
    return section(f"{word}*<{url}|{title}>*" if url else f"{word}*{title}*")


def object_line(view: RedactedView) -> Block:
    """The headline of an alert; of another object its kind, id and title."""
    subject = view.subject
    if subject.kind == "alert":
        return headline(view, limit=SHORT_TITLE)
    return section(f"{OBJECT_TYPES[subject.kind]} {subject.id} · {foreign(view.title(), TITLE_LIMIT)}")


def severities(counts: Counter[int]) -> str:
    """`2 critical, 14 high`: how many there are of each severity."""
    return ", ".join(f"{counts[n]:,} {SEVERITY_NAMES[n]}" for n in (4, 3, 2, 1) if counts[n])


def safe_link(link: str) -> str:
    """A URL that can be used in `<url|label>`; "" if this one can't."""
    try:
        parts = urlsplit(link)
    except ValueError:
        return ""
    forbidden = MASK in link or any(c in link for c in '<>|"`') or any(c.isspace() or ord(c) < 32 for c in link)
    is_safe = parts.scheme in ("http", "https") and parts.netloc and not forbidden and len(link) <= 1000
    return link.replace("&", "&amp;") if is_safe else ""


def by_ioc(artifacts: Iterable[Artifact]) -> list[Artifact]:
    """Artifacts in the order of cards and menus: IOCs first."""
    return sorted(artifacts, key=lambda artifact: not artifact.ioc)


def hosts_first(artifacts: Iterable[Artifact]) -> list[Artifact]:
    """Artifacts in the order of cards and lists: hosts, which a containment acts on, then IOCs, as some hosts are."""
    return sorted(by_ioc(artifacts), key=lambda one: one.ioc or one.data_type not in ("hostname", "fqdn"))


def observable(artifact: Artifact, view: RedactedView, data_limit: int, message_limit: int) -> str:
    """`ip 198[.]51[.]100[.]7 · destination · IOC`; mrkdwn."""
    data = clip_middle(clean(view.text(artifact_name(artifact))), data_limit - 2)
    named, said = f"{foreign(artifact.data_type, 30)} {code(data, data_limit)}", view.text(artifact.message or "")
    return " · ".join(filter(None, [named, foreign(said, message_limit), "*IOC*" if artifact.ioc else ""]))


def target_data(artifact: TargetArtifact, view: RedactedView) -> str:
    """What it names, defanged; a host in the letters of its alert or case, and of what a run gets if others."""
    known = (*view.subject.artifacts, *view.subject.others) if artifact.kind == "host" else ()
    spelled = (one.label for one in known if one.id == artifact.id or one.label.lower() == artifact.data)
    named = in_both_letters(next(spelled, artifact.data), artifact.kind, artifact.data)
    return view.text(defang(named, artifact.data_type))


def with_menu(text: str, artifact: Artifact, view: RedactedView, button: ButtonIds) -> Block:
    """A line with the menu of what can be done with the observable."""
    name = clean(view.text(artifact_name(artifact)))
    own, *domain = name.split("[.]") if artifact.data_type in ("hostname", "fqdn") else [name]
    name = clip_middle(own if domain and len(name) > MENU_LIMIT else name, MENU_LIMIT)
    block_id = ids.MENU_BLOCK + button(Intent("menu", artifact.id, view.subject.root_id))
    return section(
        text,
        block_id=block_id,
        accessory=responder_menu(f"Act on {artifact.data_type} {name}", ids.numbered(ids.MENU, artifact.id)),
    )


def menu_row(
    kind: Kind, object_id: str, button: ButtonIds, *others: Mapping[str, Any], placeholder: str = "Run a responder"
) -> Block:
    """A row with the menu of what can run on an object, and these other elements."""
    return {
        "type": "actions",
        "block_id": ids.MENU_BLOCK + button(Intent("menu", object_id, kind)),
        "elements": [responder_menu(placeholder), *others],
    }


def responder_menu(placeholder: str, action_id: str = ids.MENU) -> dict[str, Any]:
    """The searchable menu. Its entries are loaded when it is opened, before anything is typed."""
    return {
        "type": "external_select",
        "action_id": action_id,
        "placeholder": plain(foreign_plain(placeholder, 75)),
        "min_query_length": 0,
    }
