"""The one declaration of a process and of the question about it: the names, the forms and the meanings of their keys.

Flags (cli/flags.py) and the keys of recipes (config/schema.py) are made of it. Its texts name keys in backticks,
as error messages do (see ``wpriv.errors``).
"""

# ruff: noqa: RUF009 -- key() makes a field
from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from wpriv.errors import UsageError

# values stay text and are read by wpriv/numerics/numbers.py: 1e-5, 2^20, 256/60000, 60_000 and 1% work everywhere,
# with the same errors; names of other programs for these keys, such as epsilon and batch-size, are in wpriv/hints.py
Text = str | None


def key(metavar: str, help: str, *, flag: str = "", recipe: str = "") -> Any:
    """A key: the form of its value, its meaning, and what only the help of a flag or only a recipe adds to that."""
    return field(default=None, metadata={"metavar": metavar, "flag": help + flag, "recipe": help + recipe})


@dataclass(frozen=True)
class Mechanism:
    """What is released."""

    mech: Text = key("NAME", "mechanism: gauss, laplace, randomized-response, ...")
    sigma: Text = key("X", "standard deviation of the noise")
    noise_multiplier: Text = key("Z", "instead of `sigma`: sigma = Z x sensitivity")
    scale: Text = key("X", "scale b of Laplace noise")
    strategy: Text = key(
        "C", "correlated noise, `mech='matrix-gauss'`: banded:4, blt, bisr, lambda:0.9, ... or a .npy file"
    )
    param: list[str] | None = key("NAME=VALUE", "any other parameter of the mechanism; repeatable")
    sensitivity: Text = key("X", "sensitivity of the query (default 1)")
    largest_weight: Text = key("W", "largest weight of one client or record in the sum: `sensitivity` times W")


@dataclass(frozen=True)
class Schedule:
    """How often, and on which records."""

    n: Text = key(
        "K",
        "number of compositions (releases, steps)",
        flag=": 1000, 60_000, 1e6, 2^20; also --steps",
        recipe="; 1 where neither n nor epochs is given",
    )
    epochs: Text = key("E", "instead of `n`: n = epochs / rate, rounded up")
    sampling: Text = key(
        "KIND",
        "how records are drawn: none, poisson, fixed (a fixed number), allocation (each in one step of every pass), or "
        "shuffle (shuffled batches)",
    )
    bins: Text = key("B", "for allocation (balls in bins), instead of `rate`: rate = 1 / bins, the steps of a pass")
    rate: Text = key(
        "Q", "share of the records that takes part in a step", flag=": 0.01, 1%, 256/60000; also --sample-rate"
    )
    batch: Text = key("B", "instead of `rate`: rate = batch / records", flag="; also --batch-size")
    records: Text = key(
        "N",
        "size of the data set",
        flag=" (never the number of compositions); also --dataset-size",
        recipe=", for batch and epochs",
    )
    max_batch: Text = key("B", "for poisson, with `records`: of more records drawn than this, keep a random part")
    bands: Text = key(
        "B", "for poisson, gauss: n steps of a matrix mechanism with so many bands, as n / bands at bands x rate"
    )
    min_separation: Text = key(
        "B", "without sampling: a client or record takes part at most once in B steps, so in n / B of them"
    )


@dataclass(frozen=True)
class Question:
    """The question, and who is protected."""

    adjacency: Text = key(
        "NAME",
        "neighbours: add-remove, replace-one, or zero-out; left out, they follow from the sampling and the mechanism",
    )
    group: Text = key("M", "largest number of records of one person, who is protected as a whole (default 1)")
    eps: Text = key("X", "epsilon, at least 0", flag="; also --epsilon")
    delta: Text = key("X", "delta, at least 0 and below 1; 0 is pure DP")
    accountant: list[str] | None = key(
        "NAME", "accountant (default pld), as NAME or NAME:option=value; repeatable, or all"
    )
    tol: Text = key("X", "relative width of a certified bracket (default 1e-6; comparisons 1e-3)")


@dataclass(frozen=True)
class Job(Question, Schedule, Mechanism):
    """One step, its neighbours, and the question about it."""


@dataclass(frozen=True)
class More:
    """More steps, observations and runs."""

    history: Text = key(
        "FILE",
        "the results folder of a training or its ledger.jsonl; or a JSON list of steps or of [noise_multiplier, rate, "
        "steps]; - is standard input",
    )
    observed: Text = key("FILE", "for wdp and bdp: pair distances or gradients: .npz, .csv, or weibull:shape=0.5,...")
    repeats: Text = key(
        "DIST", "only the best of K such runs is released; K as geometric:mean=20, poisson:mean=20, ..."
    )


# each key with the heading of its group, which is what its dataclass says
KEYS = {
    f.name: {**f.metadata, "group": str(part.__doc__).rstrip(".")}
    for part in (Mechanism, Schedule, Question, More)
    for f in dataclasses.fields(part)
}
SCHEDULE = tuple(f.name for f in dataclasses.fields(Schedule))


@dataclass(frozen=True)
class Rule:
    """What an argument is, and therefore needs beside it (one of some others) or excludes."""

    name: str
    why: str
    needs: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()


# ``several`` stands for more than one accountant, and ``trade_off`` for the trade-off curve
RULES = (
    Rule("max_eps", "limits the eps at one delta", needs=("delta",), excludes=("curve",)),
    Rule("curve", "prints a table of one accountant", excludes=("quiet", "explain", "several")),
    Rule("quiet", "shows one accountant", excludes=("several",)),
    Rule("adaptive", "has an accountant of its own and gives one number", excludes=("curve", "accountant")),
    Rule(
        "certificate",
        "holds one eps or delta for fixed parameters",
        excludes=("curve", "adaptive", "repeats", "with_mu", "tpr", "max_mu", "several"),
    ),
    Rule("fpr", "is the smallest false-positive rate of mu and of a trade-off curve", needs=("with_mu", "trade_off")),
    Rule("with_mu", "gives one number of steps fixed in advance", excludes=("curve", "adaptive")),
    Rule(
        "repeats",
        "bounds delta at every eps, and attacks by it, but no mu is derived from that, and no trade-off curve",
        excludes=("with_mu", "trade_off"),
    ),
    Rule("trade_off", "has no eps and no delta, and goes down to `fpr`", excludes=("eps", "delta")),
    Rule(
        "adaptive",
        "and `repeats` are two questions: runs that follow on each other, or the best of independent ones",
        excludes=("repeats",),
    ),
    Rule("claim", "has its own eps and delta, and no ends to move", excludes=("eps", "delta", "width")),
    Rule("claim", "is decided by one accountant", excludes=("several",)),
)
_ADVICE = {"several": "give `accountant` once", "trade_off": "leave out `curve='tradeoff'`"}


def check(**arguments: object) -> None:
    """Refuse an argument that lacks another one, or stands beside one that it excludes (see ``RULES``)."""
    given = {name for name, value in arguments.items() if value is not None and value is not False}
    for rule in RULES:
        needs = [name for name in rule.needs if name in arguments]
        advice = [] if not needs or given & {*needs} else [f"give {' or '.join(map(_argument, needs))}"]
        advice += [_ADVICE.get(name, f"leave out `{name}`") for name in rule.excludes if name in given]
        if rule.name in given and advice:
            raise UsageError(f"{_argument(rule.name)} {rule.why}; {' and '.join(advice)}")


def _argument(name: str) -> str:
    return "`curve='tradeoff'`" if name == "trade_off" else f"`{name}`"
