"""Which SQL a release may read: queries of which every row depends on rows of its own person, and on public tables.

Only such a query has the rows of one person changed when a person is added or removed. What is not known to be of this
kind is refused: LIMIT, sampling, windows and aggregates over other people let one person decide about the rows of
another, and a function that can fail on a value shows the value by its failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from wpriv.errors import UsageError
from wpriv.numerics.numbers import shown

ROW = "row"
LONGEST_PATTERN = 1000
SQLITE, POSTGRES = "sqlite", "postgres"
# what a condition or a selected value may be made of, whose result depends on its row alone and cannot fail
_VALUES = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Null, exp.Boolean, exp.Star, exp.Alias, exp.Paren, exp.Var),
    *(exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In, exp.Is),
    *(exp.Like, exp.ILike, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Lower, exp.Upper, exp.Trim, exp.Length),
    exp.DataType,
)
_AGGREGATES = (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max)
# SQLite has a value for what fails elsewhere: NULL for a division by 0, 0 for text that is no number
_MAY_FAIL = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Neg, exp.Cast, exp.Round)
_WORDS = {
    exp.Subquery: "a subquery in a condition or value", exp.Select: "a subquery in a condition or value",
    exp.Exists: "a subquery in a condition", exp.Window: "a window function", exp.Rand: "random()",
    exp.Placeholder: "a parameter", exp.Parameter: "a parameter", exp.CurrentDate: "the current date",
    exp.CurrentTimestamp: "the current time", exp.DPipe: "||, which fails on values that are too long",
    exp.Extract: "EXTRACT, which fails on some types of values (compare dates: day >= '2026-01-01')",
}  # fmt: skip
_CLAUSES = {
    "limit": "LIMIT", "offset": "OFFSET", "with_": "WITH", "qualify": "QUALIFY", "windows": "a window", "into": "INTO",
    "locks": "a lock", "laterals": "LATERAL", "sample": "a sample",
}  # fmt: skip
_KNOWN_CLAUSES = {"expressions", "from_", "joins", "where", "group", "having", "distinct", "order"}
UNGROUPED = "an aggregate without GROUP BY of the person"
REASON = "every row must depend on rows of its own person alone, and on tables that `public` names"


def of_table(table: str, where: str, person: str, dialect: str) -> str:
    """The query for the rows of a table on which a condition holds.

    Raises:
        UsageError: the condition is none over columns of the row.
    """
    try:
        source = exp.to_table(table, dialect=dialect)
    except SqlglotError:
        raise UsageError(f"`table` must be the name of a table; found {shown(table)}") from None
    query = exp.select("*").from_(source)
    if where:
        try:
            conditions = sqlglot.parse(where, dialect=dialect)
        except SqlglotError:
            conditions = []
        if len(conditions) != 1 or not isinstance(conditions[0], exp.Condition):
            raise UsageError(f'`where` must be one condition, such as "year = 2026"; found {shown(where)}')
        query = query.where(conditions[0], copy=False)
    _Check("" if person == ROW else person, (), dialect, "`where`" if where else "`table`").select(query)
    return query.sql(dialect=dialect, comments=False)


def checked(query: str, person: str, public: Sequence[str], dialect: str) -> str:
    """A query as it is run, written anew from what was understood of it.

    Args:
        person: the column of the result that names the person of a row, or ``row``. public: tables that hold nobody.
    Raises:
        UsageError: it is no single SELECT, or its rows may depend on the rows of several people.
    """
    try:
        statements = sqlglot.parse(query, dialect=dialect)
    except SqlglotError:
        raise UsageError(f"`query` must be a SELECT; this is no SQL that is understood: {shown(query)}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Select):
        raise UsageError("`query` must be one SELECT, without UNION, WITH and other statements")
    _Check("" if person == ROW else person, tuple(public), dialect, "`query`").select(statements[0])
    for each in list(statements[0].find_all(exp.Sum)):  # in SQLite, where a sum of whole numbers fails if it overflows
        each.set("this", exp.Mul(this=exp.Literal.number("1.0"), expression=exp.Paren(this=each.this)))
    return statements[0].sql(dialect=dialect, comments=False)


@dataclass(frozen=True)
class _Check:
    """The rules for one SELECT whose column ``person`` names the person of its rows; "" where each row is one."""

    person: str
    public: tuple[str, ...]
    dialect: str
    place: str
    is_joined: bool = False  # with other tables of people, whose persons are columns as well

    def _refuse(self, what: str, way: str = "") -> UsageError:
        return UsageError(f"{self.place} has {what}, which is refused: {way or REASON}")

    def _name(self, identifier: exp.Expression | None) -> str:
        """A name as the database compares it."""
        if not isinstance(identifier, exp.Identifier):
            return ""
        text = str(identifier.this)
        return text if identifier.args.get("quoted") and self.dialect == POSTGRES else text.lower()

    def select(self, select: exp.Select) -> None:
        for clause, value in select.args.items():
            if value and clause not in _KNOWN_CLAUSES:
                raise self._refuse(_CLAUSES.get(clause, clause.strip("_").upper()))
        if select.args.get("from_") is None:
            raise self._refuse("no FROM")
        joins = select.args.get("joins") or []
        sources = [select.args["from_"].this, *(join.this for join in joins)]
        names = self._sources(sources)
        origin, table = self._origin(select, len(sources) > 1)
        if table and table not in names:
            raise self._refuse(f"the person from {table}", "take it from a table of people")
        if sources and self._is_public(sources[0]):
            raise self._refuse("a public table first", "begin with the table of people, and join the public one")
        earlier = [self._name_of(sources[0])]
        for join in joins:
            self._join(join, origin, earlier)
            if not self._is_public(join.this):
                earlier.append(self._name_of(join.this))
        for source in sources:
            if isinstance(source, exp.Subquery):
                assert isinstance(source.this, exp.Select)  # as ``_sources`` has seen
                joined = self.is_joined or len(names) > 1
                _Check(origin, self.public, self.dialect, self.place, joined).select(source.this)
        self._group(select, origin)
        self._values(select)

    def _sources(self, sources: Sequence[exp.Expression]) -> set[str]:
        """The names of the tables of people; refuses what is no plain table or SELECT."""
        names = set()
        for source in sources:
            plain = isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)
            nested = isinstance(source, exp.Subquery) and isinstance(source.this, exp.Select)
            known = {"this", "alias", "db", "catalog"}
            if not (plain or nested) or any(value and name not in known for name, value in source.args.items()):
                sampled = "a sample" if source.args.get("sample") else "a source other than tables and SELECT"
                raise self._refuse(f"{sampled} in FROM")
            if not self._is_public(source):
                names.add(self._name_of(source))
        return names

    def _name_of(self, source: exp.Expression) -> str:
        alias = source.args.get("alias")
        return self._name(alias.this) if alias is not None else self._name(source.this)

    def _is_public(self, source: exp.Expression) -> bool:
        if not isinstance(source, exp.Table):
            return False
        parts = [self._name(source.args.get(part)) for part in ("catalog", "db", "this")]
        name = ".".join(part for part in parts if part)
        return name in {public if self.dialect == POSTGRES else public.lower() for public in self.public}

    def _origin(self, select: exp.Select, several: bool) -> tuple[str, str]:
        """The column of a source that names the person, and its table; "" where there is none or it is computed."""
        if not self.person:
            return "", ""
        wanted = self.person if self.dialect == POSTGRES else self.person.lower()
        for item in select.expressions:
            value = item.this if isinstance(item, exp.Alias) else item
            is_star = isinstance(value.this if isinstance(value, exp.Column) else value, exp.Star)
            if is_star and several:
                raise self._refuse("a * beside a join", "name the columns, with their tables")
            if is_star:
                return wanted, ""
            name = self._name(item.args["alias"]) if isinstance(item, exp.Alias) else self._name(value.this)
            if name == wanted and isinstance(value, exp.Column):
                table = self._name(value.args.get("table"))
                if several and not table:
                    raise self._refuse(f"the column {self.person} without a table", f"write table.{self.person}")
                return self._name(value.this), table
        if self.is_joined:
            raise self._refuse(f"a computed {self.person} in a JOIN", "join on the column itself")
        return "", ""

    def _join(self, join: exp.Join, origin: str, earlier: Sequence[str]) -> None:
        kind = " ".join(filter(None, (join.args.get("method"), join.side, join.kind))).upper()
        if kind not in ("", "INNER", "LEFT", "LEFT OUTER", "CROSS"):
            raise self._refuse(f"a {kind} JOIN", "write JOIN or LEFT JOIN, with ON")
        if self._is_public(join.this):
            return
        joined = self._name_of(join.this)
        using = [self._name(column) for column in join.args.get("using") or []]
        pairs = [_sides(term) for term in _terms(join.args.get("on"))]
        on_person = any(
            {self._name(side.this) for side in pair} == {origin}
            and joined in (tables := {self._name(side.args.get("table")) for side in pair})
            and len(tables) == 2
            and tables <= {joined, *earlier}
            for pair in pairs
            if pair
        )
        if not origin or not (on_person or origin in using):
            column = self.person or "person"
            raise self._refuse(
                f"a JOIN with {joined or 'a table'} that is not on the person",
                f"join tables of people ON a.{column} = b.{column}, or name the table with `public` if it holds nobody",
            )

    def _group(self, select: exp.Select, origin: str) -> None:
        """Refuse groups and distinct rows of several people."""
        group, distinct = select.args.get("group"), select.args.get("distinct")
        if distinct is not None and (distinct.args.get("on") or not self.person):
            raise self._refuse("DISTINCT without the person")
        if group is None:
            if select.args.get("having"):
                raise self._refuse(UNGROUPED)
            return
        if any(value and name != "expressions" for name, value in group.args.items()):
            raise self._refuse("ROLLUP, CUBE or GROUPING SETS")
        columns = [each for each in group.expressions if isinstance(each, exp.Column)]
        if len(columns) < len(group.expressions):
            raise self._refuse("GROUP BY of a value", "name columns, one of which is the person")
        if not origin or origin not in [self._name(column.this) for column in columns]:
            raise self._refuse("GROUP BY without the person")

    def _values(self, select: exp.Select) -> None:
        """Refuse whatever values and conditions are made of that is not known to depend on the row alone."""
        parts = [*select.expressions, select.args.get("where"), select.args.get("having"), select.args.get("order")]
        parts += [join.args.get("on") for join in select.args.get("joins") or []]
        allowed = (*_VALUES, exp.Where, exp.Having, exp.Order, exp.Ordered)
        grouped = select.args.get("group") is not None
        for part in filter(None, parts):
            for node in part.walk():
                if isinstance(node, exp.Distinct) and isinstance(node.parent, exp.Count):
                    continue
                if grouped and isinstance(node, _AGGREGATES):
                    if self.dialect == POSTGRES and isinstance(node, (exp.Sum, exp.Avg)):
                        way = "it fails where numbers overflow; select the column, and release its sum"
                        raise self._refuse(_what(node), way)
                    continue
                if isinstance(node, _MAY_FAIL) and (self.dialect == SQLITE or _fails_at_once(node)):
                    continue
                if isinstance(node, _MAY_FAIL):
                    way = "it fails on some values, and a failure shows them; select the column"
                    raise self._refuse(node.sql(self.dialect)[:60], way)
                if isinstance(node, (exp.Like, exp.ILike)):
                    self._like(node.expression)
                if isinstance(node, exp.In) and node.args.get("query") is not None:
                    raise self._refuse("a subquery in a condition")
                if isinstance(node, exp.AggFunc) and not grouped:
                    raise self._refuse(UNGROUPED)
                if type(node) not in allowed:
                    raise self._refuse(_what(node))

    def _like(self, pattern: exp.Expression) -> None:
        """Refuse patterns that fail on the values that come as far as their end, or that are too long to be tried."""
        if not isinstance(pattern, exp.Literal):
            raise self._refuse("LIKE with a pattern from the table", "write the pattern")
        text = str(pattern.this)
        if len(text) > LONGEST_PATTERN or (len(text) - len(text.rstrip("\\"))) % 2:
            raise self._refuse("LIKE with a pattern that may fail", "write one of 1,000 characters that ends in no \\")


def _what(node: exp.Expression) -> str:
    """What a refused part of a query is, in words."""
    if type(node) in _WORDS:
        return _WORDS[type(node)]
    if isinstance(node, exp.AggFunc):
        return f"the aggregate {node.sql_name()}"
    if isinstance(node, exp.Anonymous):
        return f"the function {str(node.this)[:60]}, of which nothing is known"
    if isinstance(node, exp.Func):
        return f"the function {node.sql_name()}"
    return f"{type(node).__name__}"


def _terms(on: exp.Expression | None) -> Iterator[exp.Expression]:
    """The conditions that must all hold."""
    if isinstance(on, exp.Paren):
        yield from _terms(on.this)
    elif isinstance(on, exp.And):
        yield from _terms(on.this)
        yield from _terms(on.expression)
    elif on is not None:
        yield on


def _sides(term: exp.Expression) -> tuple[exp.Column, exp.Column] | None:
    """The two columns of an equation."""
    if isinstance(term, exp.EQ) and isinstance(term.this, exp.Column) and isinstance(term.expression, exp.Column):
        return term.this, term.expression
    return None


def _fails_at_once(node: exp.Expression) -> bool:
    """Whether PostgreSQL computes it before it reads a row: written values with a type, and arithmetic on dates and
    numbers that are written."""
    if isinstance(node, exp.Cast):
        return isinstance(node.this, exp.Literal)
    if isinstance(node, exp.Literal):
        return not node.is_string
    parts = [part for part in (node.this, node.args.get("expression")) if isinstance(part, exp.Expression)]
    return isinstance(node, (*_MAY_FAIL, exp.Paren)) and all(
        part.to.this == exp.DataType.Type.DATE and isinstance(part.this, exp.Literal)
        if isinstance(part, exp.Cast)
        else _fails_at_once(part)
        for part in parts
    )
