"""Searches over objects: conditions as data, compiled to SQL with bound parameters."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from core.common.database import Database, Dialect, Reads, Row, Search
from core.common.errors import ResponderBotError

Scalar = str | int | float | bool
Operator = Literal["=", ">", ">=", "<", "<="]


@dataclass(frozen=True)
class JsonPath:
    """Where a field is: JSON paths, of which the first that isn't null is used.

    With `many` the field is a list and each member is compared, at the path `inner` if members are objects.
    """

    texts: tuple[str, ...]
    many: bool = False
    inner: str = ""
    column: str = ""
    """A column, never null, that holds the field: `id`, or one with an index."""
    is_anywhere: bool = False
    """Match any text of the document instead of a field."""


@dataclass(frozen=True)
class Everything:
    """Any object."""


@dataclass(frozen=True)
class Compare:
    """A field, or one of its values, compared with a value."""

    path: JsonPath
    operator: Operator
    value: Scalar


@dataclass(frozen=True)
class Like:
    """A field, or one of its values, matches a LIKE pattern with backslash as escape."""

    path: JsonPath
    pattern: str


@dataclass(frozen=True)
class OneOf:
    """A field, or one of its values, is in `values` (a JSON list)."""

    path: JsonPath
    values: str


@dataclass(frozen=True)
class Has:
    """A field exists and isn't null."""

    path: JsonPath


@dataclass(frozen=True)
class All:
    parts: Sequence["Condition"]


@dataclass(frozen=True)
class Any_:
    parts: Sequence["Condition"]


@dataclass(frozen=True)
class Not:
    part: "Condition"


@dataclass(frozen=True)
class Parent:
    """The parent, of that kind, meets a condition."""

    part: "Condition"
    kind: str


@dataclass(frozen=True)
class Child:
    """Some child of that kind meets a condition."""

    part: "Condition"
    kind: str


Condition = Everything | Compare | Like | OneOf | Has | All | Any_ | Not | Parent | Child


@dataclass(frozen=True)
class Sort:
    path: JsonPath
    descending: bool


@dataclass(frozen=True)
class Window:
    """OFFSET and LIMIT of the sorted objects; None for no limit."""

    offset: int
    limit: int | None


RESPONSE_LIMIT_CHARS = 8 * 1_048_576  # some thousands of objects, joined and sent within 50 ms on the event loop


DOCS_AT_ONCE = 32  # where a statement is a round trip, and while they are small: one may have a million characters
SMALL_CHARS = 262_144
MAX_DOCS = RESPONSE_LIMIT_CHARS // 100  # more than a response can hold: even a small document is longer


async def page(
    database: Database,
    kind: str,
    condition: Condition,
    sorts: Sequence[Sort],
    window: Window,
    shorten: Callable[[str], str] | None = None,
) -> tuple[list[str], int]:
    """The documents in the window, and the number of all objects that meet the condition.

    Beyond half of RESPONSE_LIMIT_CHARS documents are passed through `shorten`, if given. Raises
    ResponderBotError("bad_request") if they exceed the limit all the same.
    """
    compiler = _COMPILERS[database.dialect]()
    # Actions have a table of their own; both have an `id` and a `doc`.
    table, own = ("action", "TRUE") if kind == "action" else ("object", f"o0.kind = {compiler.bind(kind)}")
    source = f"FROM {table} o0{compiler.parsed(0)} WHERE {own} AND {compiler.condition(condition, 0)}"
    count, counted = f"SELECT count(*) AS total {source}", dict(compiler.params)
    order = "".join(f"{compiler.scalar(sort.path, 0)} {compiler.direction(sort)}, " for sort in sorts)
    limit = MAX_DOCS if window.limit is None else window.limit
    bounds = f"LIMIT {compiler.bind(limit)} OFFSET {compiler.bind(window.offset)}"
    # Sort ids only: SQLite would copy documents to disk to sort them.
    ids = f"SELECT o0.id AS id {source} ORDER BY {order}o0.id {bounds}"

    def read(search: Search) -> tuple[list[str], int]:
        total = int(next(search.rows(count, counted))["total"])
        docs = docs_of(search, database.dialect, table, search.rows(ids, compiler.params))
        return list(within_limit(docs, total, shorten)), total

    return await database.search(read)


def docs_of(search: Search, dialect: Dialect, table: str, found: Iterator[Row]) -> Iterator[str]:
    """The documents with the ids in `found`, in that order; a few are in memory at once."""
    sql = f"SELECT id, doc FROM {table} WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_each(:ids))"
    at_once, most = 1, DOCS_AT_ONCE if dialect == "postgresql" else 1
    while part := [row["id"] for row in islice(found, at_once)]:
        texts = {row["id"]: str(row["doc"]) for row in search.rows(sql, {"ids": json.dumps(part)})}
        yield from (texts[number] for number in part if number in texts)
        is_small = sum(map(len, texts.values())) < SMALL_CHARS
        at_once = min(2 * at_once, most) if is_small else 1


def within_limit(docs: Iterable[str], total: int, shorten: Callable[[str], str] | None) -> Iterator[str]:
    """The documents of a response. Raises as `page` does."""
    chars = 0
    for doc in docs:
        shown = doc if shorten is None or chars + len(doc) <= RESPONSE_LIMIT_CHARS // 2 else shorten(doc)
        chars += len(shown)
        if chars > RESPONSE_LIMIT_CHARS:
            limit = f"{RESPONSE_LIMIT_CHARS // 1_048_576} MiB"
            sentence = (
                f"The answer would be over {limit}, of {total} in all; ask for a part with `range`, such as 0-100."
            )
            raise ResponderBotError("bad_request", sentence)
        yield shown


def newest(reads: Reads, kind: str) -> Row | None:
    """The newest object of a kind."""
    return reads.row(
        "SELECT id, kind, parent_id, doc FROM object WHERE kind = :kind ORDER BY id DESC LIMIT 1", {"kind": kind}
    )


async def custom_fields(database: Database, kinds: Collection[str], newest_of_each: int) -> dict[str, str]:
    """Names of the custom fields of the newest objects, with the type (one of `kinds`) of the newest one."""
    objects = " UNION ALL ".join(
        f"SELECT * FROM (SELECT id, doc FROM object WHERE kind = '{kind}' ORDER BY id DESC LIMIT :newest) AS {kind}s"
        for kind in ("alert", "case", "case_template")
    )
    rows = await database.fetch_in_background(
        "SELECT field.key AS name, entry.key AS kind"
        f" FROM ({objects}) AS o, json_each(json_extract(o.doc, '$.customFields')) AS field,"
        " json_each(field.value) AS entry"
        " WHERE entry.key IN (SELECT value FROM json_each(:kinds)) GROUP BY 1, 2 ORDER BY max(o.id)",
        {"newest": newest_of_each, "kinds": json.dumps(list(kinds))},
    )
    return {row["name"]: row["kind"] for row in rows}


class _Compiler:
    """Compiles conditions to SQL; `o<level>` is the object tested, a level for each step to a parent or child.

    For SQLite, whose functions for JSON give values that compare as they should; subclasses say what differs.
    """

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}

    def bind(self, value: Any) -> str:
        name = f"p{len(self.params)}"
        self.params[name] = value
        return f":{name}"

    def parsed(self, level: int) -> str:
        """What is joined to an object, so that its document is parsed once."""
        return ""

    def direction(self, sort: Sort) -> str:
        return "DESC NULLS LAST" if sort.descending else "ASC NULLS FIRST"

    def scalar(self, path: JsonPath, level: int) -> str:
        if path.column:
            return f"o{level}.{path.column}"
        found = [self._field(text, level) for text in path.texts]
        return found[0] if len(found) == 1 else f"coalesce({', '.join(found)})"

    def condition(self, condition: Condition, level: int) -> str:
        match condition:
            case Everything():
                return "TRUE"
            case Compare(path, operator, value):
                return self._values(path, level, f"{{}} {operator} {self._operand(path, value)}")
            case Like(path, pattern):
                return self._values(path, level, self._like(path, pattern))
            case OneOf(path, values):
                return self._values(path, level, f"{{}} IN ({self._members(path, values)})")
            case Has(path):
                return self._values(path, level, "{} IS NOT NULL")
            case All(parts):
                return self._joined(parts, " AND ", level)
            case Any_(parts):
                return self._joined(parts, " OR ", level)
            case Not(part):
                return f"(NOT {self.condition(part, level)})"
            case Parent(part, kind) | Child(part, kind):
                return self._related(part, kind, level, up=isinstance(condition, Parent))

    def _values(self, path: JsonPath, level: int, test: str) -> str:
        """A test of a field. `coalesce`, since NOT of the null for a missing field would be null too."""
        if path.column:
            return test.format(self.scalar(path, level))
        if path.is_anywhere:
            texts, value = self._texts(level)
        elif not path.many:
            return f"coalesce({test.format(self.scalar(path, level))}, FALSE)"
        else:
            texts, value = self._list(path, level)
        return f"EXISTS (SELECT 1 FROM {texts} AND {test.format(value)})"

    def _field(self, text: str, level: int) -> str:
        return f"json_extract(o{level}.doc, {self.bind(text)})"

    def _operand(self, path: JsonPath, value: Scalar) -> str:
        return self.bind(value)

    def _like(self, path: JsonPath, pattern: str) -> str:
        return f"{{}} LIKE {self.bind(pattern)} ESCAPE '\\'"

    def _members(self, path: JsonPath, values: str) -> str:
        return f"SELECT value FROM json_each({self.bind(values)})"

    def _texts(self, level: int) -> tuple[str, str]:
        """All texts of a document: what to select from, and the value."""
        return f"json_tree(o{level}.doc) AS v WHERE v.type = 'text' AND v.key IS NOT '_type'", "v.value"

    def _list(self, path: JsonPath, level: int) -> tuple[str, str]:
        """The members of a list, likewise."""
        value = f"json_extract(v.value, {self.bind(path.inner)})" if path.inner else "v.value"
        return f"json_each(o{level}.doc, {self.bind(path.texts[0])}) AS v WHERE TRUE", value

    def _joined(self, parts: Sequence[Condition], word: str, level: int) -> str:
        return f"({word.join(self.condition(part, level) for part in parts)})"

    def _related(self, part: Condition, kind: str, level: int, *, up: bool) -> str:
        far = f"o{level + 1}"
        near, other = (f"o{level}.parent_id", "id") if up else (f"o{level}.id", "parent_id")
        where = f"{far}.kind = {self.bind(kind)} AND {self.condition(part, level + 1)}"
        # IN instead of EXISTS: a search by the parent's id, the usual one, then finds children by their index.
        return f"{near} IN (SELECT {far}.{other} FROM object {far}{self.parsed(level + 1)} WHERE {where})"


class _PostgresqlCompiler(_Compiler):
    """For PostgreSQL: a value of a document is a `comparable`, with an order over all types as SQLite's."""

    def parsed(self, level: int) -> str:
        # OFFSET keeps it from being put in place of each of its uses.
        return f" CROSS JOIN LATERAL (SELECT CAST(as_json(o{level}.doc) AS JSONB) AS doc OFFSET 0) AS d{level}"

    def _field(self, text: str, level: int) -> str:
        return f"comparable(d{level}.doc #> CAST({self.bind(_keys(text))} AS TEXT[]))"

    def _operand(self, path: JsonPath, value: Scalar) -> str:
        if path.column:
            return self.bind(value)
        if isinstance(value, str):
            return f"comparable({self.bind(value)})"
        number = str(int(value)) if isinstance(value, bool) else repr(value)  # a double would lose digits
        return f"comparable(CAST({self.bind(number)} AS NUMERIC))"

    def _like(self, path: JsonPath, pattern: str) -> str:
        if (len(pattern) - len(pattern.rstrip("\\"))) % 2:  # an escape of nothing: it matches nothing
            return "{} IS NULL AND FALSE"
        value = 'lower(CAST({} AS TEXT) COLLATE "C")' if path.column else "folded({})"
        return f"{value} LIKE lower({self.bind(pattern)} COLLATE \"C\") ESCAPE '\\'"

    def _members(self, path: JsonPath, values: str) -> str:
        if path.column:
            members = json.loads(values)
            kind = "NUMERIC" if any(isinstance(one, float) for one in members) else "BIGINT"
            value = "value" if any(isinstance(one, str) for one in members) else f"CAST(value AS {kind})"
            return f"SELECT {value} FROM json_each({self.bind(values)})"
        return f"SELECT comparable(value) FROM json_members(CAST({self.bind(values)} AS JSONB))"

    def _texts(self, level: int) -> tuple[str, str]:
        return f"json_texts(d{level}.doc) AS v WHERE TRUE", "comparable(v.value)"

    def _list(self, path: JsonPath, level: int) -> tuple[str, str]:
        members = f"json_members(d{level}.doc #> CAST({self.bind(_keys(path.texts[0]))} AS TEXT[])) AS v"
        value = f"v.value #> CAST({self.bind(_keys(path.inner))} AS TEXT[])" if path.inner else "v.value"
        return f"{members} WHERE TRUE", f"comparable({value})"


_COMPILERS: Mapping[Dialect, type[_Compiler]] = {"sqlite": _Compiler, "postgresql": _PostgresqlCompiler}
_KEY = re.compile(r'\."([^"]*)"|\.([^."]+)')


def _keys(path: str) -> list[str]:
    """The keys of a JSON path, such as `$.customFields."a b".string`."""
    return [quoted or plain for quoted, plain in _KEY.findall(path)]
