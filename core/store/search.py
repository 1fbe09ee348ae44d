"""Searches over objects: checked conditions as SQL with bound parameters."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

from core.common.database import Database, Dialect, Reads, Row, Search
from core.common.errors import ResponderBotError

Scalar = str | int | float | bool
Operator = Literal["=", ">", ">=", "<", "<="]
Condition = str
"""SQL whose parameters its `Conditions` have bound."""
EVERYTHING, NOTHING = "TRUE", "FALSE"
INDEXED_TAG_CHARS = 200  # PostgreSQL indexes no more than 2,600 bytes


@dataclass(frozen=True)
class JsonPath:
    """Where a field is: JSON paths; the first that isn't null is used.

    With `many` the field is a list and each member is compared, at the path `inner` if members are objects.
    """

    texts: tuple[str, ...]
    many: bool = False
    inner: str = ""
    column: str = ""
    """A column that holds the field."""
    is_tag: bool = False
    """Whether `alert_tag` has its values."""
    is_anywhere: bool = False
    """Match any text of the document instead of a field."""


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
MAX_DOCS = RESPONSE_LIMIT_CHARS // 100  # more documents than a response can hold


async def page(
    database: Database,
    kind: str,
    conditions: "Conditions",
    condition: Condition,
    sorts: Sequence[Sort],
    window: Window,
    shorten: Callable[[str], str] | None = None,
    alerts: Sequence[int] | None = None,
    *,
    count: bool = True,
) -> tuple[list[str], int | None]:
    """The documents in the window, and with `count` the number of all objects that meet the condition.

    With `alerts`, the objects are the artifacts in the documents of these alerts. Beyond half of RESPONSE_LIMIT_CHARS
    documents are passed through `shorten`, if given. Raises ResponderBotError("bad_request") if they exceed the limit
    all the same.
    """
    # Actions have a table of their own; both have an `id` and a `doc`.
    is_action = kind == "action"
    table, own = ("action", "TRUE") if is_action else ("object", f"o0.kind = {conditions.bind(kind)}")
    for column in {sort.path.column for sort in sorts} & _NEVER_NULL:
        own += f" AND o0.{column} IS NOT NULL"  # as in its index
    if alerts is not None:
        table, own = conditions.artifacts_of(alerts), "TRUE"
    where = f"WHERE {own} AND {condition}"
    total_sql = f"SELECT count(*) AS total FROM {table} o0{conditions.parsed(0, condition)} {where}"
    counted = dict(conditions.params)
    order = "".join(f"{conditions.scalar(sort.path, 0)} {conditions.direction(sort)}, " for sort in sorts)
    by_id = "DESC" if sorts and sorts[-1].descending else "ASC"  # so that an index on the column and the id serves
    limit = MAX_DOCS if window.limit is None else window.limit
    bounds = f"LIMIT {conditions.bind(limit)} OFFSET {conditions.bind(window.offset)}"
    # Sort ids only: SQLite would copy documents to disk to sort them.
    source = f"FROM {table} o0{conditions.parsed(0, condition + order)} {where}"
    ids = f"SELECT o0.id AS id {source} ORDER BY {order}o0.id {by_id} {bounds}"

    def read(search: Search) -> tuple[list[str], int | None]:
        total = int(next(search.rows(total_sql, counted))["total"]) if count else None
        if alerts is not None:  # no table has them by their ids
            rows = search.rows(ids.replace("o0.id AS id", "o0.doc AS doc", 1), conditions.params)
            return list(within_limit((str(row["doc"]) for row in rows), shorten)), total
        docs = docs_of(search, database.dialect, table, search.rows(ids, conditions.params))
        return list(within_limit(docs, shorten)), total

    return await database.search(read)


def docs_of(search: Reads | Search, dialect: Dialect, table: str, ids: Iterator[Row]) -> Iterator[str]:
    """The documents with the ids in `ids`, in that order; a few are in memory at once."""
    sql = f"SELECT id, doc FROM {table} WHERE id IN (SELECT CAST(value AS BIGINT) FROM json_each(:ids))"
    at_once, most = 1, DOCS_AT_ONCE if dialect == "postgresql" else 1
    while part := [row["id"] for row in islice(ids, at_once)]:
        texts = {row["id"]: str(row["doc"]) for row in search.rows(sql, {"ids": json.dumps(part)})}
        yield from (texts[number] for number in part if number in texts)
        is_small = sum(map(len, texts.values())) < SMALL_CHARS
        at_once = min(2 * at_once, most) if is_small else 1


def within_limit(docs: Iterable[str], shorten: Callable[[str], str] | None) -> Iterator[str]:
    """The documents of a response. Raises as `page` does."""
    chars = 0
    for doc in docs:
        shown = doc if shorten is None or chars + len(doc) <= RESPONSE_LIMIT_CHARS // 2 else shorten(doc)
        chars += len(shown)
        if chars > RESPONSE_LIMIT_CHARS:
            limit = f"{RESPONSE_LIMIT_CHARS // 1_048_576} MiB"
            sentence = f"The answer would be over {limit}; ask for a part with `range`, such as 0-100."
            raise ResponderBotError("bad_request", sentence)
        yield shown


def fitting(docs: Iterable[str]) -> Iterator[str]:
    """The first documents, as many as one response holds."""
    chars = 0
    for doc in docs:
        chars += len(doc)
        if chars > RESPONSE_LIMIT_CHARS:
            return
        yield doc


def newest(reads: Reads, kind: str) -> Row | None:
    return reads.row(
        "SELECT id, kind, parent_id, doc FROM object WHERE kind = :kind ORDER BY id DESC LIMIT 1", {"kind": kind}
    )


async def custom_fields(database: Database, kinds: Collection[str], newest_of_each: int) -> dict[str, str]:
    """Names of the custom fields of the newest objects, with the type (one of `kinds`) of the newest one."""
    objects = " UNION ALL ".join(
        f"SELECT * FROM (SELECT id, doc FROM object WHERE kind = '{kind}' ORDER BY id DESC LIMIT :newest) AS {kind}s"
        for kind in ("alert", "case", "case_template")
    )
    fields = "json_each(o.doc, '$.customFields') AS field, json_each(field.value) AS entry"
    if database.dialect == "postgresql":
        fields = "jsonb_each(as_json(o.doc) -> 'customFields') AS field, jsonb_each(field.value) AS entry"
    rows = await database.fetch_in_background(
        f"SELECT field.key AS name, entry.key AS kind FROM ({objects}) AS o, {fields}"
        " WHERE entry.key IN (SELECT value FROM json_each(:kinds)) GROUP BY 1, 2 ORDER BY max(o.id)",
        {"newest": newest_of_each, "kinds": json.dumps(list(kinds))},
    )
    return {row["name"]: row["kind"] for row in rows}


def conditions_for(dialect: Dialect) -> "Conditions":
    return Conditions() if dialect == "sqlite" else _PostgresqlConditions()


class Conditions:
    """Makes conditions; `o<level>` is the object tested, a level for each step to a parent or child.

    For SQLite, whose functions for JSON give values that compare as they should; the subclass says what differs. A
    condition on a missing field is null, which counts as false.
    """

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}

    def bind(self, value: Any) -> str:
        name = f"p{len(self.params)}"
        self.params[name] = value
        return f":{name}"

    def compare(self, path: JsonPath, operator: Operator, value: Scalar, level: int) -> Condition:
        """The field, or one of its values, compares so with the value."""
        if path.is_tag and operator == "=":
            return self._tagged(path, [value], level)
        return self._tested(path, level, f"{{}} {operator} {self._operand(path, value)}")

    def like(self, path: JsonPath, pattern: str, level: int) -> Condition:
        """The field, or one of its values, matches a LIKE pattern with backslash as escape."""
        return self._tested(path, level, self._like(path, pattern))

    def one_of(self, path: JsonPath, values: Sequence[Scalar], level: int) -> Condition:
        """The field, or one of its values, is among the values."""
        if path.is_tag:
            return self._tagged(path, values, level)
        return self._one_of(path, values, level)

    def _one_of(self, path: JsonPath, values: Sequence[Scalar], level: int) -> Condition:
        return self._tested(path, level, f"{{}} IN ({self._members(path, values)})")

    def has(self, path: JsonPath, level: int) -> Condition:
        """The field exists and isn't null."""
        return self._tested(path, level, "{} IS NOT NULL")

    def all(self, parts: Sequence[Condition]) -> Condition:
        return f"({' AND '.join(parts)})" if parts else EVERYTHING

    def any(self, parts: Sequence[Condition]) -> Condition:
        return f"({' OR '.join(parts)})" if parts else NOTHING

    def negate(self, part: Condition) -> Condition:
        return f"(NOT coalesce({part}, FALSE))"

    def parent(self, kind: str, part: Condition, level: int) -> Condition:
        """The parent, of that kind, meets a condition of the next level."""
        return self._related(kind, part, level, f"o{level}.parent_id", "id")

    def child(self, kind: str, part: Condition, level: int) -> Condition:
        """Some child of that kind meets a condition of the next level."""
        return self._related(kind, part, level, f"o{level}.id", "parent_id")

    def parsed(self, level: int, sql: str) -> str:
        """What is joined to an object, so that its document is parsed once; nothing if this SQL doesn't read it."""
        return ""

    def artifacts_of(self, alerts: Sequence[int]) -> str:
        """The artifacts in the documents of alerts as a table."""
        columns = "CAST(substr(json_extract(v.value, '$.id'), 2) AS BIGINT) AS id, NULL AS parent_id, v.value AS doc"
        return f"(SELECT {columns} FROM object o1, json_each(o1.doc, '$.artifacts') v WHERE {self._among(alerts)})"

    def _among(self, alerts: Sequence[int]) -> str:
        return f"o1.id IN (SELECT CAST(value AS BIGINT) FROM json_each({self.bind(json.dumps(alerts))}))"

    def direction(self, sort: Sort) -> str:
        if sort.path.column in _NEVER_NULL:
            return "DESC" if sort.descending else "ASC"
        return "DESC NULLS LAST" if sort.descending else "ASC NULLS FIRST"

    def scalar(self, path: JsonPath, level: int) -> str:
        if path.column:
            return f"o{level}.{path.column}"
        fields = [self._field(text, level) for text in path.texts]
        return fields[0] if len(fields) == 1 else f"coalesce({', '.join(fields)})"

    def _tagged(self, path: JsonPath, values: Sequence[Scalar], level: int) -> Condition:
        """One of these tags; the index has only the beginning of a long one, so that is compared in the document."""
        tags = self._texts_in([str(value)[:INDEXED_TAG_CHARS] for value in values])
        tagged = f"o{level}.id IN (SELECT alert_id FROM alert_tag WHERE tag {tags})"
        is_exact = all(len(str(value)) < INDEXED_TAG_CHARS for value in values)
        return tagged if is_exact else self.all([tagged, self._one_of(path, values, level)])

    def _texts_in(self, values: Sequence[str]) -> str:
        return f"IN (SELECT value FROM json_each({self.bind(json.dumps(values))}))"

    def _tested(self, path: JsonPath, level: int, test: str) -> Condition:
        if path.column or not (path.many or path.is_anywhere):
            return test.format(self.scalar(path, level))
        texts, value = self._texts(level) if path.is_anywhere else self._list(path, level)
        return f"EXISTS (SELECT 1 FROM {texts} AND {test.format(value)})"

    def _field(self, text: str, level: int) -> str:
        return f"json_extract(o{level}.doc, {self.bind(text)})"

    def _operand(self, path: JsonPath, value: Scalar) -> str:
        return self.bind(value)

    def _like(self, path: JsonPath, pattern: str) -> str:
        return f"{{}} LIKE {self.bind(pattern)} ESCAPE '\\'"

    def _members(self, path: JsonPath, values: Sequence[Scalar]) -> str:
        return f"SELECT value FROM json_each({self.bind(json.dumps(values))})"

    def _texts(self, level: int) -> tuple[str, str]:
        """All texts of a document: what to select from, and the value."""
        return f"json_tree(o{level}.doc) AS v WHERE v.type = 'text' AND v.key IS NOT '_type'", "v.value"

    def _list(self, path: JsonPath, level: int) -> tuple[str, str]:
        """The members of a list, likewise."""
        value = f"json_extract(v.value, {self.bind(path.inner)})" if path.inner else "v.value"
        return f"json_each(o{level}.doc, {self.bind(path.texts[0])}) AS v WHERE TRUE", value

    def _related(self, kind: str, part: Condition, level: int, near: str, column: str) -> Condition:
        far = f"o{level + 1}"
        where = f"{far}.kind = {self.bind(kind)} AND {part}"
        # IN instead of EXISTS: a search by the parent's id, the usual one, then finds children by their index.
        return f"{near} IN (SELECT {far}.{column} FROM object {far}{self.parsed(level + 1, part)} WHERE {where})"


class _PostgresqlConditions(Conditions):
    """For PostgreSQL: a value of a document is a `comparable`, with an order over all types as SQLite's."""

    def parsed(self, level: int, sql: str) -> str:
        if f"d{level}.doc" not in sql:
            return ""
        # OFFSET keeps it from being put in place of each of its uses.
        return f" CROSS JOIN LATERAL (SELECT as_json(o{level}.doc) AS doc OFFSET 0) AS d{level}"

    def artifacts_of(self, alerts: Sequence[int]) -> str:
        members = "CROSS JOIN LATERAL json_members(d1.doc -> 'artifacts') v"
        columns = "CAST(substr(v.value ->> 'id', 2) AS BIGINT) AS id, CAST(NULL AS BIGINT) AS parent_id"
        source = f"object o1{self.parsed(1, members)} {members} WHERE {self._among(alerts)}"
        return f"(SELECT {columns}, CAST(v.value AS TEXT) AS doc FROM {source})"

    def _texts_in(self, values: Sequence[str]) -> str:
        return f"= ANY({self.bind(list(values))})"  # the planner sees how many they are

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

    def _members(self, path: JsonPath, values: Sequence[Scalar]) -> str:
        bound = self.bind(json.dumps(values))
        if not path.column:
            return f"SELECT comparable(value) FROM json_members(CAST({bound} AS JSONB))"
        kind = "NUMERIC" if any(isinstance(value, float) for value in values) else "BIGINT"
        value = "value" if any(isinstance(value, str) for value in values) else f"CAST(value AS {kind})"
        return f"SELECT {value} FROM json_each({bound})"

    def _texts(self, level: int) -> tuple[str, str]:
        return f"json_texts(d{level}.doc) AS v WHERE TRUE", "comparable(v.value)"

    def _list(self, path: JsonPath, level: int) -> tuple[str, str]:
        members = f"json_members(d{level}.doc #> CAST({self.bind(_keys(path.texts[0]))} AS TEXT[])) AS v"
        value = f"v.value #> CAST({self.bind(_keys(path.inner))} AS TEXT[])" if path.inner else "v.value"
        return f"{members} WHERE TRUE", f"comparable({value})"


_NEVER_NULL = frozenset(["id", "object_id", "created_at", "severity", "date"])
_KEY = re.compile(r'\."([^"]*)"|\.([^."]+)')


def _keys(path: str) -> list[str]:
    """The keys of a JSON path, such as `$.customFields."a b".string`."""
    return [quoted or plain for quoted, plain in _KEY.findall(path)]
