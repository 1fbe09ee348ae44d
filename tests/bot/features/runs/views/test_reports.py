"""What cards say of an action's report, and which operations they and the documents know."""

import re

from bot.features.runs.views.reports import OPERATION_PHRASES
from core.reports.operations import OPERATIONS
from tests.documents import ROOT


def test_every_operation_has_a_phrase() -> None:
    assert OPERATION_PHRASES.keys() == OPERATIONS.keys()


def test_every_operation_is_in_the_documents() -> None:
    table = (ROOT / "core/docs/semantics.md").read_text().partition("| operation | fields | works from |")[2]
    named = re.findall(r"^\| `(\w+)` \|", table.partition("\n\n")[0], re.M)
    assert sorted(named) == sorted(OPERATIONS)
