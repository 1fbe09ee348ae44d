"""Presets: how bodies of a product become alerts, as data (core/sources/presets)."""

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

from core.common.settings_file import checked, reject_unknown
from core.settings import MappingSection, SourceSection
from core.sources.mapping import words_of

FOLDER = Path(__file__).parent / "presets"


class Preset(MappingSection):
    """A file of the folder."""

    product: str
    """The product and its version."""
    documentation: tuple[str, ...]
    """Where its bodies are described."""
    setup: str
    """What to write where, in that product; see `lines`."""
    own_severities: bool = False
    """Whether those who run the product name the severities, as in labels; else a source may name no others."""
    keep: bool = False
    """Whether the body stays with its alert, as a file."""

    def lines(self, address: str, name: str, key: str) -> str:
        """`setup` with the address of core, the name of a source and its key."""
        parts = urlsplit(address)
        path = f"/api/ingest/{name}"
        filled = {
            "url": f"{address}{path}",
            "url_with_key": f"{parts.scheme}://{name}:{key}@{parts.netloc}{path}",
            "host": str(parts.hostname),
            "port": str(parts.port),
            "path": path,
            "key": key,
        }
        return re.sub(r"\{(\w+)\}", lambda match: filled.get(match[1], match[0]), self.setup.strip())


def names() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.toml"))


def load(name: str) -> Preset:
    """The preset of this name. Raises ResponderBotError("bad_request") that says which there are."""
    reject_unknown(name, names(), f"There is no preset {name}")
    file = FOLDER / f"{name}.toml"
    return checked(Preset, tomllib.loads(file.read_text(encoding="utf-8")), file.name, FOLDER)


def merged(section: SourceSection) -> MappingSection:
    """The map of a source: what its section says, and for the rest its preset.

    Raises ValueError for a severity that the product doesn't say.
    """
    if not section.preset:
        return section
    preset = load(section.preset)
    if section.severity and not preset.own_severities:
        known = words_of(preset.severity)
        if unknown := sorted(words_of(section.severity) - known):
            says = f"it says {', '.join(sorted(known))}" if known else "it says numbers"
            raise ValueError(f"severity has {unknown[0]!r}, which {section.preset} doesn't say; {says}")
    own = {name: getattr(section, name) for name in section.model_fields_set & MappingSection.model_fields.keys()}
    return preset.model_copy(update={**own, "map": {**preset.map, **section.map}})
