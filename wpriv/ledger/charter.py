"""The charter of a ledger: the rule, the neighbours, the scopes and the limits, all fixed before the first release."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from wpriv.accounting import build_process, load_recipe
from wpriv.config import plain_words
from wpriv.core.kinds import Adjacency
from wpriv.core.mechanism import Mechanism
from wpriv.core.process import Process, Step
from wpriv.errors import UnknownName, UsageError
from wpriv.hints import plain
from wpriv.ledger import filters
from wpriv.ledger.filters import Limit
from wpriv.ledger.scopes import ROOT, Gate, InForce, Partition, Tree
from wpriv.numerics.numbers import number, shown, whole

What = str | Process | Step | Mechanism
MOST_LETTERS = 500


def canonical(data: object) -> str:
    """JSON with sorted keys and without blanks, so that equal data are equal text."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(text: str) -> str:
    """SHA-256 of text, in hexadecimal digits."""
    return hashlib.sha256(text.encode()).hexdigest()


def require_texts(**texts: object) -> None:
    """Check what is kept as it was given, or None: plain text of a length that every database takes.

    Raises:
        UsageError: it is no text, or longer, or holds what is no text (a zero byte, a lone surrogate).
    """
    for name, value in texts.items():
        if value is None:
            continue
        if (
            not isinstance(value, str)
            or len(value) > MOST_LETTERS
            or "\0" in value
            or any("\ud800" <= letter <= "\udfff" for letter in value)
        ):
            raise UsageError(f"`{name}` is a text of up to {MOST_LETTERS} letters; found {ascii(value)[:60]}")


def describe(now: InForce) -> dict[str, object]:
    """A limit in force as plain data."""
    return {"limit": now.limit.as_dict(), "caps": [list(caps) for caps in now.caps]}


def in_force(row: Mapping[str, Any]) -> InForce:
    """The limit in force that ``describe`` describes."""
    return InForce(Limit(**row["limit"]), tuple(tuple(map(int, caps)) for caps in row["caps"]))


@dataclass(frozen=True)
class Charter:
    """What a ledger fixes before its first release.

    Args:
        rule: how releases are added up. tree: scopes, partitions and limits with their filters.
        group: records of one person. unit: what one record stands for, in words. plan: declared releases (T6).
    """

    rule: str
    tree: Tree
    group: int
    unit: str
    plan: tuple[Step, ...] = ()

    def as_text(self) -> str:
        """Canonical JSON, of which the ledger keeps the digest."""
        tree = self.tree
        gates = [
            {"scope": gate.scope, "limit": gate.limit.as_dict(), "filters": filters.describe(gate.filters)}
            | ({} if gate.first is None else {"first": describe(gate.first)})
            for gate in tree.gates
        ]
        about = {"rule": self.rule, "adjacency": tree.adjacency, "group": self.group, "unit": self.unit}
        places = {"scopes": tree.parents, "partitions": [asdict(each) for each in tree.partitions]}
        return canonical({**about, **places, "gates": gates, "plan": [step.describe() for step in self.plan]})

    @classmethod
    def of_text(cls, text: str) -> Charter:
        """The charter of ``as_text``."""
        data = json.loads(text)
        gates = tuple(
            Gate(
                row["scope"],
                Limit(**row["limit"]),
                filters.of_description(row["filters"]),
                in_force(row["first"]) if "first" in row else None,
            )
            for row in data["gates"]
        )
        partitions = tuple(Partition(**{**row, "parts": tuple(row["parts"])}) for row in data["partitions"])
        tree = Tree(tuple((name, above) for name, above in data["scopes"]), partitions, gates, data["adjacency"])
        plan = tuple(Step.from_dict(row) for row in data["plan"])
        return cls(data["rule"], tree, data["group"], data["unit"], plan)


def charter(
    *,
    eps: float | None = None,
    delta: float | None = None,
    rho: float | None = None,
    mu: float | None = None,
    ceiling: str | None = None,
    rule: str = "residue",
    kappa: float | None = None,
    leaks: float | None = None,
    plan: str | Process | None = None,
    adjacency: str = Adjacency.ADD_REMOVE,
    group: int = 1,
    unit: str = "",
    limits: Sequence[str] = (),
    scopes: Sequence[str] = (),
    partitions: Sequence[str] = (),
) -> Charter:
    """The charter of a ledger from the arguments of ``Ledger.create``."""
    adjacency = plain("adjacencies", adjacency)
    if adjacency not in tuple(Adjacency):
        raise UnknownName("adjacency", adjacency, sorted(Adjacency))
    group = whole(group, "group")
    if not 1 <= group <= 2**40:
        raise UsageError(f"`group` is the number of records of one person, from 1 to 2^40; found {group}")
    require_texts(unit=unit)
    for name, words in {"limits": limits, "scopes": scopes, "partitions": partitions}.items():
        if isinstance(words, str) or not all(isinstance(word, str) for word in words):
            raise UsageError(f"`{name}` is a list of texts; found {shown(words)}")
    kappa, leaks = (None if x is None else number(x, name) for x, name in ((kappa, "kappa"), (leaks, "leaks")))
    first = {"eps": eps, "delta": delta, "rho": rho, "mu": mu}
    given = {name: value for name, value in first.items() if value is not None}
    if ceiling is not None and not given:
        raise UsageError("`ceiling` is that of `eps` with `delta`, of `rho` or of `mu`, which are missing")
    tops = [(Limit(**given), None if ceiling is None else limit_of(ceiling))] if given else []
    tops += [_limits(word) for word in limits]
    declared = None if plan is None else process_of(plan, adjacency, group)
    if declared is not None and rule not in ("residue", "gauss"):
        raise UsageError(
            f"`plan` lowers the budget of rules residue and gauss; under {rule} it gains nothing: spend its releases"
        )
    parents, limited = [(ROOT, "")], [(ROOT, pair) for pair in tops]
    for word in scopes:
        name, colon, rest = word.partition(":")
        parents.append((name, name.rpartition("/")[0] or ROOT))
        limited += [(name, _limits(each)) for each in rest.split(";")] if colon else []
    if not limited:
        raise UsageError("a ledger needs a limit: `eps` with `delta`, or `rho`, or `mu`")
    gates = []
    for scope, (limit, most) in limited:
        promised, there = most or limit, declared if scope == ROOT else None
        kept = filters.of_limit(promised, rule, kappa, leaks, there)
        now = None if most is None else InForce(limit, filters.caps(limit, promised, kept, there))
        gates.append(Gate(scope, promised, kept, now))
    split = tuple(map(Partition.parse, partitions))
    tree = Tree(tuple(parents), split, tuple(gates), adjacency)
    return Charter(rule, tree, group, unit, () if declared is None else declared.steps)


def limit_of(text: str) -> Limit:
    """The limit that is written as ``eps=1,delta=1e-6``."""
    row = {}
    for word in str(text).split(","):
        name, equals, value = (part.strip() for part in word.partition("="))
        if not equals or name not in ("eps", "delta", "rho", "mu") or name in row:
            raise UsageError(f"a limit is written eps=1,delta=1e-6, or rho=0.1, or mu=0.5; found {str(text)[:80]!r}")
        row[name] = number(value, name)
    return Limit(**row)


def _limits(text: str) -> tuple[Limit, Limit | None]:
    """The limit in force at first and its ceiling, from ``eps=1,delta=1e-6 up to eps=3,delta=1e-6``."""
    first, up, most = text.partition(" up to ")
    return limit_of(first), limit_of(most) if up else None


def process_of(what: What, adjacency: str, group: int) -> Process:
    """The process of a release, given in words, as a recipe of kind budget or as an object, under given neighbours."""
    if isinstance(what, str):
        if plain_words.is_sentence(what):
            words = plain_words.parse(what)
            steps, about = words.steps, words.shared
        else:
            about = load_recipe.read(what, kind="budget").data
            steps = about["process"]
        relation = plain("adjacencies", str(about.get("adjacency") or adjacency))
        persons = whole(about.get("group") or group, "group")
        what = build_process.described_steps(steps, relation, persons).process
    elif isinstance(what, (Step, Mechanism)):
        what = Process((what if isinstance(what, Step) else Step(what),), adjacency, group)
    elif not isinstance(what, Process):
        raise UsageError(f"a release is words, a mechanism, a Step or a Process; found {type(what).__name__}")
    if (what.adjacency, what.group) != (adjacency, group):
        raise UsageError(
            f"the ledger is kept for {adjacency} neighbours and groups of {group}; found a release for "
            f"{what.adjacency} neighbours and groups of {what.group}"
        )
    return what
