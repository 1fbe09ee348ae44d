"""The repository's Markdown: its pages, headings, links, code blocks and commands."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.M | re.S)
_SHELL = re.compile(r"(uv|pip|pipx|python|responder-bot) \S|\.ci/run$")


def files(*suffixes: str) -> list[Path]:
    """The repository's files whose names end so; without those that tools make."""
    found = [path for path in ROOT.iterdir() if path.is_file()]
    for top in (".ci", ".github", "bot", "core", "tests"):
        for folder, folders, names in os.walk(ROOT / top):
            folders[:] = {*folders} - {"__pycache__", "node_modules", ".venv", "venv"}
            found += [Path(folder, name) for name in names]
    return sorted(path for path in found if path.name.endswith(suffixes))


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a page in this language, without their indentation."""
    return [
        re.sub(f"^{indent}", "", code, flags=re.M)
        for indent, written_in, code in _FENCE.findall(page.read_text())
        if written_in == language
    ]


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return _FENCE.sub("", page.read_text())


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.+)$", prose(page), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> Iterator[str]:
    """The targets of a page's links and pictures."""
    yield from re.findall(r"\]\(([^)\s]+)\)", prose(page))
    yield from re.findall(r'(?:src|srcset|href)="([^"]+)"', prose(page))


def commands(page: Path) -> list[str]:
    """What a page tells people to type: in shell blocks, in sentences, in tables. Blocks with curl are programs."""
    spans = [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", prose(page))]
    lines = [line for block in blocks(page, "sh") if "curl" not in block for line in block.splitlines()]
    return [*lines, *(span for span in spans if _SHELL.match(span))]
