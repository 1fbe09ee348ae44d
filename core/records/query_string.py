"""The text of `_string`: Lucene's query syntax, as far as public clients use it, translated into JSON criteria."""

import re
from typing import Any

from core.common.errors import bad_request

MAX_CHARS = 1_000
MAX_NESTING = 4  # of parentheses: each is up to two levels of a query, whose depth is limited too
ANYWHERE = "keyword"  # the field that stands for every text of an object

_TOKEN = re.compile(
    r"""\s*(?:(?P<close>\))|(?P<negation>[!-])(?=\S)|\+?(?:(?P<field>[\w.]+):(?=\S))?"""
    r"""(?:(?P<open>\()|"(?P<phrase>(?:[^"\\]|\\.)*)"|(?P<word>[^\s()"]+)))""",
    re.ASCII | re.DOTALL,
)
_OPERATORS = {"AND": "AND", "&&": "AND", "OR": "OR", "||": "OR", "NOT": "NOT"}
_SYNTAX = (
    '_string takes words, "phrases", field:value, AND, OR, NOT and parentheses, such as '
    f"title:phish* AND NOT tlp:3, of at most {MAX_CHARS} characters"
)


def parse(text: Any) -> dict[str, Any]:
    """The criteria that a query string stands for; terms with nothing between them are alternatives, as in Lucene.

    Raises ResponderBotError("bad_request") with what may be written.
    """
    if not isinstance(text, str) or len(text) > MAX_CHARS:
        raise bad_request(_SYNTAX)
    if text.strip() in ("", "*", "*:*"):
        return {}
    parser = _Parser(text.rstrip())
    criteria = parser.alternatives(ANYWHERE, 0)
    if not parser.at_end:
        raise bad_request(_SYNTAX)
    return criteria


class _Parser:
    """Recursive descent: alternatives of conjunctions of terms."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._position == len(self._text)

    def alternatives(self, field: str, depth: int) -> dict[str, Any]:
        """Up to the end, or to a closing parenthesis; `field` is that of terms without one."""
        parts = [self._conjunction(field, depth)]
        while not self.at_end and not self._peek()["close"]:
            if self._operator() == "OR":
                self._next()
            parts.append(self._conjunction(field, depth))
        return parts[0] if len(parts) == 1 else {"_or": parts}

    def _conjunction(self, field: str, depth: int) -> dict[str, Any]:
        parts = [self._term(field, depth)]
        while self._operator() == "AND":
            self._next()
            parts.append(self._term(field, depth))
        return parts[0] if len(parts) == 1 else {"_and": parts}

    def _term(self, field: str, depth: int) -> dict[str, Any]:
        is_negated = False
        while self._operator() == "NOT":
            self._next()
            is_negated = not is_negated
        criteria = self._operand(field, depth)
        return {"_not": criteria} if is_negated else criteria

    def _operand(self, field: str, depth: int) -> dict[str, Any]:
        if self._operator():
            raise bad_request(_SYNTAX)
        token = self._next()
        field = token["field"] or field
        if token["open"]:
            return self._group(field, depth)
        if token["close"]:
            raise bad_request(_SYNTAX)
        word, phrase = token["word"], token["phrase"]
        if word is not None and word[0] in "[{<>":
            raise bad_request("_string takes no ranges; send _between, _gt, _gte, _lt or _lte beside it")
        if word == "*":
            return {} if field == ANYWHERE else {"_contains": field}
        value = re.sub(r"\\(.)", r"\1", word if phrase is None else phrase)
        return {"_match": {"_field": field, "_value": value}}

    def _group(self, field: str, depth: int) -> dict[str, Any]:
        if depth == MAX_NESTING:
            raise bad_request(f"_string takes at most {MAX_NESTING} parentheses inside each other")
        criteria = self.alternatives(field, depth + 1)
        if self.at_end or not self._next()["close"]:
            raise bad_request(_SYNTAX)
        return criteria

    def _operator(self) -> str:
        """AND, OR or NOT where the next token is one, else ""."""
        if self.at_end:
            return ""
        token = self._peek()
        if token["negation"]:
            return "NOT"
        return "" if token["field"] else _OPERATORS.get(token["word"] or "", "")

    def _peek(self) -> re.Match[str]:
        token = _TOKEN.match(self._text, self._position)
        if token is None:
            raise bad_request(_SYNTAX)
        return token

    def _next(self) -> re.Match[str]:
        token = self._peek()
        self._position = token.end()
        return token
