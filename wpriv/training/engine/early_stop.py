"""Early stopping: when a training looks at its test records, what a look at private ones releases, and when it ends.

Looks at records that are declared public cost nothing. At private ones a look is the number of them that the network
gets right, with noise: a record changes that by at most 1, whatever the network. The training records are others, so
that each record is in the releases of one kind alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from wpriv.accounting import evaluate, ledger
from wpriv.accounting.mechanisms.gauss import Gauss
from wpriv.config.train_parts import EarlyStop
from wpriv.core.process import Process, Step
from wpriv.errors import UsageError
from wpriv.numerics.numbers import echo, text
from wpriv.results import storage


@dataclass(frozen=True)
class Looks:
    """When a training looks at its test records.

    Args:
        rule: of the recipe. every: steps between two looks. most: the number of looks where the training does not end
            early; none follows the last step. sigma: noise multiplier of a look; 0 where the records are public.
        adjacency: the neighbouring relation of the looks. delta: at which their eps is stated.
    """

    rule: EarlyStop
    every: int
    most: int
    sigma: float = 0.0
    adjacency: str = ""
    delta: float = 0.0

    @cached_property
    def step(self) -> Step | None:
        """One look, as it is accounted for; None where it costs nothing."""
        return Step(Gauss(self.sigma)) if self.sigma else None

    def process(self, earlier: tuple[Step, ...] = ()) -> Process:
        """Return all looks of the plan after those of earlier runs: an end before is a function of what they show."""
        assert self.step is not None
        return Process((replace(self.step, n=self.most), *earlier), self.adjacency)

    def figure(self, figures: Mapping[str, float]) -> tuple[str, float]:
        """Return the figure that decides, with its name.

        Raises:
            UsageError: the task does not measure it.
        """
        name = self.rule.metric or ("accuracy" if "accuracy" in figures else "test_loss")
        if name not in figures or (self.sigma and name != "accuracy"):
            private = "private records are looked at by the accuracy of one class for each record, " * bool(self.sigma)
            raise UsageError(
                f"early_stop: {private}found {', '.join(figures)} among the figures of test records, and no "
                f"{'accuracy' if self.sigma else name}. Give another metric, or public records"
            )
        return name, figures[name]

    def in_words(self, earlier: tuple[Step, ...] = ()) -> list[str]:
        """Return what the statement says of the looks, and of what they cost the test records."""
        name = "accuracy" if self.sigma else self.rule.metric or "accuracy, or the loss where there is none,"
        of = (
            "counted with noise"
            if self.sigma
            else "which are declared public"
            if self.rule.records
            else "without noise"
        )
        rule = (
            f"The training was to end early where the {name} of the test records, {of}, was not better in "
            f"{self.rule.patience} looks in a row, one every {self.every} steps"
        )
        if not self.sigma:
            return [rule]
        process = self.process(earlier)
        row = evaluate.ask(evaluate.curve(process, "pld", evaluate.answer_tol(process)), delta=self.delta)
        looks = sum(step.n for step in process.steps)
        return [
            rule,
            f"A test record is in none of the steps. It changes {looks} noisy counts at most (noise multiplier "
            f"{echo(self.sigma)}, {storage.LOOKS}), and they keep eps = {text(row.epsilon.safe, up=True)} at delta = "
            f"{echo(self.delta)} for it under {self.adjacency} neighbours. For a person with records on both sides, "
            f"this and the guarantee of a training record add up",
        ]


@dataclass
class Watch:
    """What a training has seen of its test records.

    Args:
        best: the best figure so far; a loss has the other sign. waited: looks since then.
    """

    looks: Looks
    best: float = -math.inf
    waited: int = 0

    def is_due(self, step: int, steps: int) -> bool:
        """Return whether a look follows a step of so many."""
        return step % self.looks.every == 0 and step < steps

    def see(self, name: str, figure: float) -> None:
        """Note a figure; one that is no number is not better."""
        value = figure if name == "accuracy" else -figure
        better = value > self.best + (0.0 if self.best == -math.inf else self.looks.rule.least)
        self.best, self.waited = (value, 0) if better else (self.best, self.waited + 1)

    @property
    def is_over(self) -> bool:
        """Return whether the training ends."""
        return self.waited >= self.looks.rule.patience


def earlier_looks(entries: list[ledger.Entry], run: int) -> tuple[Step, ...]:
    """Return all looks that earlier runs of a ledger planned."""
    planned = {entry.run: (entry.release, entry.planned) for entry in entries if entry.run < run}
    return tuple(replace(ledger.fewest(release), n=count) for release, count in planned.values())
