"""Documents, and comments that refer to them, lead somewhere."""

import re
from contextlib import closing
from pathlib import Path

import pytest
import sqlite_utils

from bot.outbox.store import STORES
from core.models import PROFILES
from core.store.database import schema
from tests.documents import ROOT, commands, files, links, prose, slugs

CONTRIBUTING = ROOT / ".github/CONTRIBUTING.md"
PAGES = files(".md")
SOURCES = files(".py", ".md", ".js", ".html", ".css", ".toml", ".yml", ".json", "/run")

_PAGE = re.compile(r"(?<![\w/.-])(?:[\w.-]+/)*[\w.-]+\.md(?!\w)(?:#[\w-]+)?")
_LINK = re.compile(r"\[[^\]]*\]\([^)\s]+\)")
_PATH = re.compile(r"`((?:[\w.-]+/)+(?:[\w.-]+\.\w+)?)`")


def leads_nowhere(target: str, start: Path) -> bool:
    """Whether a reference in the file `start`, such as `bot/docs/slack.md#cards`, has no file or no heading."""
    name, _, slug = target.partition("#")
    found = [page for page in (start.parent / name, ROOT / name) if name and page.exists()] if name else [start]
    return not any(not slug or slug in slugs(page) for page in found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    inside = [target for target in links(page) if not re.match(r"\w+:", target)]
    dead = [target for target in inside if leads_nowhere(target, page)]
    assert dead == []
    assert not [
        target for target in inside if not (page.parent / target.partition("#")[0]).resolve().is_relative_to(ROOT)
    ]


def test_the_readme_has_the_test_command_that_ci_runs() -> None:
    assert "pip install uv && uv run pytest" in commands(ROOT / "README.md")


def test_every_page_that_is_named_is_in_the_repository() -> None:
    dead = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in SOURCES
        for name in _PAGE.findall(_LINK.sub("", file.read_text()))
        if leads_nowhere(name, file)
    }
    assert dead == set()


def test_every_path_that_contributing_names_exists() -> None:
    named = _PATH.findall(prose(CONTRIBUTING))
    assert named
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_below_a_folder_of_the_repository_exists(page: Path) -> None:
    """Other paths that a page names are of job folders, or of the reader's own files."""
    roots = (ROOT, page.parent)
    named = [path for path in _PATH.findall(prose(page)) if any((root / path.split("/")[0]).exists() for root in roots)]
    assert [path for path in named if not any((root / path).exists() for root in roots)] == []


def test_every_name_in_contributing_exists() -> None:
    """Code-formatted names, in the glossary and elsewhere, that are neither a path nor a command."""
    spans = re.findall(r"`([^`]+)`", prose(CONTRIBUTING))
    names = {span for span in spans if re.fullmatch(r"[\w.-]+", span)}
    code = "\n".join(file.read_text() for file in files(".py", ".toml", ".yml", "/run"))
    file_names = {file.name for file in files("")}
    assert names
    patterns = {name: re.escape(name) for name in names - file_names}  # one that begins with a word is searched fast
    assert sorted(name for name, word in patterns.items() if not re.search(rf"{word}(?<!\w{word})(?!\w)", code)) == []


def test_the_table_of_profiles_has_each_with_its_permissions() -> None:
    page = (ROOT / "core/docs/semantics.md").read_text().partition("\n### Profiles")[2].partition("\n### ")[0]
    rows = [row.split("|")[1:3] for row in page.splitlines() if row.startswith("| `")]
    named = {name.strip(" `"): set(re.findall(r"`(\w+)`", permissions)) for name, permissions in rows}
    named["org-admin"] |= named["analyst"]  # it says so
    assert named == {name: set(permissions) for name, permissions in PROFILES.items()}


def test_every_test_that_the_threat_model_names_exists() -> None:
    """Each row of promises and of ways round names one, or leads to those that do."""
    page = (ROOT / "core/docs/threat-model.md").read_text()
    defined = {
        name for file in files(".py") for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.M)
    }
    named = set(re.findall(r"`(test_\w+)`", page))
    assert named
    assert named - defined == set()
    tables = [page.partition(heading)[2].partition("\n## ")[0] for heading in ("## Promises", "## Ways round")]
    rows = [line for table in tables for line in table.splitlines() if line.startswith("| ") and "---" not in line]
    assert [row for row in rows if not re.search(r"`test|test_\w+\.py|\| tests? \||\]\(#ways", row)] == []


def test_the_architecture_names_what_there_is() -> None:
    """Its tables are those of both databases, its modules exist, and its threads are started."""
    page = (ROOT / "core/docs/architecture.md").read_text()
    tables = set()
    for migrate in (schema.migrate, *(store.migrate for store in STORES)):
        with closing(sqlite_utils.Database(memory=True)) as db:
            migrate(db)
            tables |= {name for name in db.table_names() if not re.match(r"_?sqlite_|.*_fts", name)}
    cells = {name for line in page.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line)}
    assert tables <= cells
    text = page.replace("\n", " ")
    modules = set(re.findall(r"(?:core|bot)/[\w/]+\.py", text))
    assert modules
    assert [module for module in sorted(modules) if not (ROOT / module).is_file()] == []
    code = "\n".join(path.read_text() for path in files(".py"))
    threads = set(re.findall(r"`(store-\w+)`", page)) | {"secrets"}
    assert [name for name in sorted(threads) if f'"{name}"' not in code] == []


def test_the_log_of_actions_is_documented() -> None:
    page = (ROOT / "core/docs/operations.md").read_text().partition("\n## Logs")[2].partition("\n## ")[0]
    actions = [file for file in files(".py") if file.is_relative_to(ROOT / "core/actions")]
    noted = {name for file in actions for name in re.findall(r'\bnote\(tx, "(\w+)"', file.read_text())}
    assert "run_ended" in noted
    assert noted - set(re.findall(r"`(\w+)`", page)) == set()


def test_no_stilted_phrase_comes_back() -> None:
    """What a colleague would not say; the rest is for whoever reads a change."""
    everywhere = r"of which|in whose|whom|anew|mended|by and by"
    in_code = rf"{everywhere}|(?:is|are) told|(?:in|out of) the way|what stands|on offer"
    found = []
    for file in files(".py", ".md", ".toml"):
        path = file.relative_to(ROOT)
        phrases = re.compile(rf"\b(?:{in_code if path.parts[0] in ('bot', 'core') else everywhere})\b", re.I)
        if file != Path(__file__):
            found += [f"{path}: {line.strip()}" for line in file.read_text().splitlines() if phrases.search(line)]
    assert found == []
