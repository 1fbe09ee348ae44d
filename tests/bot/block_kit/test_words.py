"""What people read in Slack is about alerts, responders and hosts, not about how responder-bot is built."""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests.bot.payloads import payloads
from tests.bot.samples import NOW

BOT = Path(__file__).parents[3] / "bot"
INTERNAL = re.compile(r"\b(?:core|engines?|org-admins?|(?<!JSON )objects?|artifacts?)\b", re.I)
# `doctor` speaks to whoever runs the programs.
FOR_OPERATORS = {BOT / "features" / "help.py"}  # of `doctor`


def sentences(tree: ast.AST) -> Iterator[str]:
    """String constants with a blank, without docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        # A part of an f-string has a blank at least at one end.
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield from [] if id(node) in docstrings else [node.value]


def test_no_sentence_names_a_part_of_responder_bot() -> None:
    sources = [path for folder in ("features", "block_kit") for path in (BOT / folder).rglob("*.py")]
    found = [
        f"{path.relative_to(BOT)}: {sentence}"
        for path in sources
        if path not in FOR_OPERATORS
        for sentence in sentences(ast.parse(path.read_text()))
        if INTERNAL.search(sentence)
    ]
    assert found == []


def test_no_message_names_a_part_of_responder_bot() -> None:
    texts = re.findall(r'"text": "((?:[^"\\]|\\.)*)"', json.dumps(payloads(NOW)))
    assert len(texts) > 100
    assert [text for text in texts if INTERNAL.search(text)] == []
