"""What a training will do and cost, before it begins and without torch: steps, noise, eps after every epoch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from wpriv import tasks
from wpriv.config.recipe import Recipe
from wpriv.config.train_schema import Privacy, Train
from wpriv.core.guarantee import Guarantee
from wpriv.core.process import Process, Sampling, Step
from wpriv.engine import release_spec
from wpriv.engine.cost_estimate import CostEstimate
from wpriv.engine.release_spec import ReleaseSpec
from wpriv.errors import Unsupported, UsageError
from wpriv.run.accounting import build_process, evaluate
from wpriv.run.accounting.search_parameter import SearchParameter
from wpriv.run.accounting.solve_parameter import solve_for

ACCOUNTANT = "pld"
# width of the brackets of eps on the way, after each epoch; that of the whole run is as narrow as its statement's
ON_THE_WAY = 1e-4


@dataclass(frozen=True)
class Plan:
    """A training as planned.

    Args:
        recipe: the checked recipe. sizes: of the training set and, for some tasks, of its groups. batch: expected records of a step.
        steps: how many. sampling: how records are drawn, as run and as accounted. release: what a step releases, None without privacy.
        multiplier: standard deviation of the noise over the sensitivity of the sum. before: what runs before this one have spent.
        stopped: the steps were cut so that eps is kept. notes: how the recipe was read.
    """

    recipe: Recipe
    sizes: Mapping[str, int]
    batch: int
    steps: int
    sampling: Sampling
    release: ReleaseSpec | None
    multiplier: float
    before: tuple[Step, ...] = ()
    stopped: bool = False
    notes: tuple[str, ...] = ()
    _eps: dict[int, float | None] = field(default_factory=dict, compare=False, repr=False)

    @property
    def train(self) -> Train:
        assert self.recipe.training is not None
        return self.recipe.training

    @property
    def records(self) -> int:
        return self.sizes["records"]

    @property
    def adjacency(self) -> str:
        return "" if self.release is None else self.release.adjacency

    @cached_property
    def step(self) -> Step | None:
        """One release as accounted; None without privacy."""
        return None if self.release is None else Step(self.release.at(self.multiplier), 1, self.sampling)

    def releases(self, steps: int) -> int:
        """How often something is released in so many steps."""
        return 1 if self.release is not None and self.release.once else steps

    @property
    def private(self) -> Privacy | None:
        return self.train.privacy

    @cached_property
    def cost(self) -> CostEstimate | None:
        """A rough estimate of time and memory, which imports torch; None where the task has none."""
        return tasks.load(self.train.task).estimate_cost(self.train, self.sizes, self.steps, self.batch)

    @cached_property
    def epoch_ends(self) -> list[int]:
        """The steps after which an epoch (records / batch steps) is over; the last step is one of them."""
        epochs = math.ceil(self.steps * self.batch / self.records - 1e-9)
        ends = {min(math.ceil(e * self.records / self.batch - 1e-9), self.steps) for e in range(1, epochs + 1)}
        return sorted(ends | {self.steps})

    def process(self, steps: int | None = None) -> Process:
        """What will have run after so many steps (all of them), with what ran before.

        Raises:
            Unsupported: there is no privacy to account.
        """
        if self.step is None:
            raise Unsupported("a training without privacy has nothing to account: every eps is infinite")
        return Process((replace(self.step, n=self.releases(steps or self.steps)), *self.before), self.adjacency)

    def eps(self, steps: int | None = None) -> float | None:
        """eps at the recipe's delta after so many steps, rounded up; None without privacy or where no finite eps is proven."""
        steps = steps or self.steps
        if self.private is None or self.private.delta is None:
            return None
        if steps not in self._eps:
            process = self.process(steps)
            try:
                tol = evaluate.answer_tol(process)
                tol = tol if steps == self.steps else max(tol, ON_THE_WAY)
                self._eps[steps] = evaluate.ask(
                    evaluate.curve(process, ACCOUNTANT, tol), delta=self.private.delta
                ).epsilon.safe
            except Unsupported:
                self._eps[steps] = None
        return self._eps[steps]


def plan(recipe: Recipe, sizes: Mapping[str, int], before: Process | None = None) -> Plan:
    """Reads the schedule of a recipe, and finds the noise (or the number of steps) that keeps its target.

    Args:
        sizes: what its task says of the data (``records`` at least). before: what earlier runs on the same data have spent (--fork).
    Raises:
        UsageError: batch and records do not fit. Unsupported: the target cannot be reached.
    """
    train = recipe.training
    assert train is not None
    release = None
    try:
        if train.privacy is not None:
            release = tasks.load(train.task).release(train, sizes)
            sampling, batch = release.sampling, release.batch
        else:
            sampling, batch = release_spec.sampling_of(train, sizes["records"])
    except UsageError as error:
        raise UsageError(f"{recipe.name}: {error}") from None
    if release is not None and release.once and before:
        told = f"the task {train.task} releases once, and the weights here hold what was released already"
        raise Unsupported(
            f"{recipe.name}: {told}: nothing can go on from them. Begin again with --fresh, or in another folder"
        )
    if release is not None and before is not None and release.adjacency != before.adjacency:
        raise Unsupported(
            f"{recipe.name} is accounted for under {release.adjacency} neighbours, and the runs before it under {before.adjacency}: they "
            f"have no cost together. Keep to these neighbours (privacy.sampling, privacy.adjacency), or train in another folder"
        )
    notes: tuple[str, ...] = ()
    if train.steps is not None:
        steps = train.steps
    elif sampling.kind == "none":
        assert train.epochs is not None
        steps = math.ceil(train.epochs)
    else:
        read = build_process.repetition(
            batch=batch, records=sizes["records"], epochs=train.epochs, sampling=sampling.kind
        )
        assert read.n is not None
        steps, notes = read.n, read.notes
    found = Plan(
        recipe, sizes, batch, steps, sampling, release, 0.0, () if before is None else before.steps, notes=notes
    )
    return found if train.privacy is None else _private(found, train.privacy)


def _private(plan: Plan, private: Privacy) -> Plan:
    """The plan with its noise, and with fewer steps where those asked for would cost more than the target."""
    eps, delta, notes = private.eps, private.delta, plan.notes
    assert delta is not None

    def at(multiplier: float, steps: int) -> Process:
        return replace(plan, multiplier=multiplier, _eps={}).process(steps)

    if private.sigma is None:
        assert eps is not None
        knob = SearchParameter("sigma", +1, 1e-12, 1e15)
        accountant = private.accountant or ACCOUNTANT
        tol = evaluate.answer_tol(at(1.0, plan.steps))
        answer = solve_for(knob, lambda value: at(value, plan.steps), accountant, eps, delta, tol)
        multiplier, row = answer.value, answer.row
        times = "once" if plan.releases(plan.steps) == 1 else f"over {plan.steps} steps"
        least = f"sigma = {multiplier:g} is the least that keeps eps = {row.epsilon.safe:.6g} <= {eps:g}"
        joined = ", as if it and the runs before it had been planned together" if plan.before else ""
        notes += (f"{least} {times}{joined}, by {accountant} ({row.claim})", *answer.warnings())
    else:
        multiplier = private.sigma / 2 if private.clip == "batch-mean" else private.sigma
    made = replace(plan, multiplier=multiplier, notes=notes)
    if private.sigma is None or eps is None:
        return made
    after = made.eps()
    if after is not None and after <= eps:
        return made
    # the statement asks at this width, and must not find more than the target where a narrower bracket would not
    tol = evaluate.answer_tol(at(multiplier, plan.steps))
    knob = SearchParameter("n", -1, 1, plan.steps, whole=True)
    answer = solve_for(knob, lambda n: at(multiplier, int(n)), ACCOUNTANT, eps, delta, tol, finest=tol)
    most = int(answer.value)
    told = f"stops after {most} of {plan.steps} steps, where eps = {answer.row.epsilon.safe:.6g}: one more would exceed {eps:g}"
    return replace(made, steps=most, stopped=True, notes=(*notes, told), _eps={})


def guarantees(plan: Plan, process: Process) -> tuple[list[Guarantee], list[evaluate.Refusal]]:
    """What every accountant of the recipe says of what ran, and those that have no answer."""
    private = plan.private
    assert private is not None
    rows, refused = [], []
    for name in plan.train.accountants:
        try:
            found = evaluate.ask(evaluate.curve(process, name, evaluate.answer_tol(process)), delta=private.delta)
            rows.append(replace(found, accountant=name))  # with its options, which tell apart what it says
        except Unsupported as error:
            refused.append(evaluate.Refusal(name, str(error)))
    return rows, refused
