"""The plan of a training, made before it begins and without torch: steps, noise, eps after every epoch, and duration.

Some answers are kept. The guarantee of the end is asked for in the last epoch, the statement and the result; the noise
is solved for again in each cell of a sweep with the same privacy, and when a run is resumed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache

from wpriv import strategies
from wpriv.accounting import evaluate
from wpriv.accounting.mechanisms.matrix_gauss import MatrixGauss
from wpriv.accounting.search import Unknown
from wpriv.accounting.target import Solution, Target, solve_for
from wpriv.config.field_types import Time
from wpriv.config.recipe import Recipe
from wpriv.config.train_schema import Privacy, Train
from wpriv.core.guarantee import Guarantee
from wpriv.core.kinds import Sampling
from wpriv.core.process import Process, Step
from wpriv.core.repetition import repetition
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.numbers import duration, echo, text
from wpriv.training import tasks
from wpriv.training.engine import release_spec
from wpriv.training.engine.cost_estimate import CostEstimate
from wpriv.training.engine.early_stop import Looks
from wpriv.training.engine.release_spec import ReleaseSpec, count_share, default_count_noise
from wpriv.training.noise.recursion import Recursion, recursion

MAX_ANSWERS = 64  # that are kept, of each kind
NOISE = Unknown("sigma", +1, 1e-12, 1e15)

_noises: dict[tuple[object, ...], Solution] = {}


def guarantee(process: Process, accountant: str, tol: float, delta: float | None) -> Guarantee:
    """Return the guarantee of a process at delta; equal questions are computed once.

    Raises:
        UsageError, Unsupported: as for ``evaluate.curve`` and ``evaluate.ask``.
    """
    ask = _kept_guarantee if _is_hashable(process) else _kept_guarantee.__wrapped__
    return ask(process, accountant, tol, delta)


@lru_cache(maxsize=MAX_ANSWERS)
def _kept_guarantee(process: Process, accountant: str, tol: float, delta: float | None) -> Guarantee:
    return evaluate.ask(evaluate.curve(process, accountant, tol), delta=delta)


def least_noise(at: Callable[[float], Process], accountant: str, eps: float, delta: float, tol: float) -> Solution:
    """The least noise multiplier at which ``at(multiplier)`` meets a target; equal questions are solved once."""
    samples = (at(1.0), at(2.0))
    if not all(map(_is_hashable, samples)):
        return solve_for(NOISE, at, accountant, Target(eps, delta), tol)
    key = (*samples, accountant, eps, delta, tol)
    kept = _noises.get(key)
    if kept is not None and kept.row.process == at(kept.value):
        return kept
    if len(_noises) >= MAX_ANSWERS:
        del _noises[next(iter(_noises))]
    _noises[key] = solve_for(NOISE, at, accountant, Target(eps, delta), tol)
    return _noises[key]


def _is_hashable(process: Process) -> bool:
    """Return whether a process has a hash: one with arrays, as of observed distances, has none."""
    try:
        hash(process)
    except TypeError:
        return False
    return True


ACCOUNTANT = "pld"
# width of the brackets of eps after each epoch; the bracket of the whole run is as narrow as that of its statement
EPOCH_TOL = 1e-4
# the relative distance from the least noise up to which noise is called the least
NEAR_LEAST = 1e-3


@dataclass(frozen=True)
class Plan:
    """A training as planned.

    Args:
        recipe: the validated recipe. sizes: of the training set and, for some tasks, of its groups.
        batch: the expected number of records in a step. steps: number of steps.
        sampling: how records are drawn, as run and as accounted. release: what a step releases, None without privacy.
        multiplier: standard deviation of the noise over the sensitivity of the sum.
        before: the releases of earlier runs. notes: how the recipe was read.
        planned: the steps that were planned, where the training was ended before them; else 0. scheduled: the step of
            that end was fixed in advance; else it may depend on what earlier steps released.
    """

    recipe: Recipe
    sizes: Mapping[str, int]
    batch: float
    steps: int
    sampling: Sampling
    release: ReleaseSpec | None
    multiplier: float
    before: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()
    planned: int = 0
    scheduled: bool = True

    @property
    def train(self) -> Train:
        return self.recipe.train

    @property
    def records(self) -> int:
        return self.sizes["records"]

    @property
    def adjacency(self) -> str:
        return "" if self.release is None else self.release.adjacency

    @property
    def private(self) -> Privacy | None:
        return self.train.privacy

    @property
    def delta(self) -> float:
        """The delta of the guarantee, which every recipe with privacy has."""
        assert self.private is not None
        assert self.private.delta is not None
        return self.private.delta

    @cached_property
    def step(self) -> Step | None:
        """What is accounted for together: a release, a pass, or with correlated noise all; None without privacy."""
        if self.release is None:
            return None
        n = (self.planned or self.steps) if self.release.strategy else self.sampling.pass_steps
        return Step(self.release.at(self.multiplier), n, self.sampling)

    @cached_property
    def recursion(self) -> Recursion | None:
        """The weights of earlier noise in the noise of a step; None where the noise of steps is independent."""
        if self.step is None or not isinstance(self.step.mechanism, MatrixGauss):
            return None
        given = self.step.mechanism
        return recursion(strategies.strategy(given.strategy, 0, given.separation, given.participations))

    def releases(self, steps: int) -> int:
        """Return the number of releases in so many steps."""
        return min(steps, 1) if self.release is not None and self.release.once else steps

    @cached_property
    def cost(self) -> CostEstimate | None:
        """A rough estimate of time and memory, which imports torch; None where the task has none."""
        return tasks.load(self.train.task).estimate_cost(self.train, self.sizes, self.steps, math.ceil(self.batch))

    @cached_property
    def epoch_ends(self) -> list[int]:
        """The steps after which an epoch (records / batch steps) is complete; the last step is one of them."""
        if self.sampling.kind == "allocation":
            return list(range(self.sampling.pass_steps, self.steps + 1, self.sampling.pass_steps))
        epochs = math.ceil(self.steps * self.batch / self.records - 1e-9)
        ends = {min(math.ceil(e * self.records / self.batch - 1e-9), self.steps) for e in range(1, epochs + 1)}
        return sorted(ends | {self.steps})

    def process(self, steps: int | None = None) -> Process:
        """Return the releases of so many steps (default: all) after those of earlier runs.

        A part of a pass, or of a training with correlated noise, counts as the whole.
        """
        if self.step is None:
            raise Unsupported("a training without privacy has no process to account for: every eps is infinite")
        n = -(-self.releases(self.steps if steps is None else steps) // self.step.unit) * self.step.unit
        return self.under_neighbours((replace(self.step, n=n), *self.before) if n else self.before)

    def under_neighbours(self, steps: tuple[Step, ...]) -> Process:
        """Return steps as a process, with the records of one person that the recipe names."""
        group = 1 if self.private is None else self.private.group
        return Process(steps, self.adjacency, group, self.records if group > 1 else 0)

    def eps(self, steps: int | None = None) -> float | None:
        """Return eps at the recipe's delta after so many steps, rounded up; None without privacy or a finite eps."""
        steps = self.steps if steps is None else steps
        if self.private is None:
            return None
        if steps == 0 and not self.before:
            return 0.0
        process = self.process(steps)
        try:
            tol = evaluate.answer_tol(process)
            tol = tol if steps == self.steps else max(tol, EPOCH_TOL)
            return guarantee(process, ACCOUNTANT, tol, self.delta).epsilon.safe
        except Unsupported:
            return None

    def ended(self, steps: int, *, scheduled: bool) -> Plan:
        """Return the plan of a training that was ended after so many of its steps."""
        return replace(self, steps=steps, planned=self.steps, scheduled=scheduled)

    @cached_property
    def looks(self) -> Looks | None:
        """When the training looks at test records to end early; None where it does not."""
        rule, private, steps = self.train.early_stop, self.private, self.planned or self.steps
        if rule is None:
            return None
        every = rule.every or max(1, round(self.records / self.batch))
        most = (steps - 1) // every
        if not most:
            raise UsageError(
                f"{self.recipe.name}: early_stop looks every {every} steps, and the training has {steps}. Give a "
                f"smaller `every`"
            )
        looks = Looks(rule, every, most)
        if rule.records != "private" or private is None:
            return looks
        target = rule.eps or private.eps
        assert target is not None

        def at(sigma: float) -> Looks:
            return replace(looks, sigma=sigma, adjacency=self.adjacency, delta=self.delta)

        tol = evaluate.answer_tol(at(1.0).process())
        return at(least_noise(lambda sigma: at(sigma).process(), ACCOUNTANT, target, self.delta, tol).value)

    @property
    def end(self) -> tuple[str, ...]:
        """Return what the statement says of an end before the planned one."""
        if not self.planned:
            return ()
        words = f"The training was ended after {self.steps} of {self.planned} planned steps"
        if self.scheduled or self.private is None:
            return (f"{words}, at a step that was fixed in advance",) if self.scheduled else (words,)
        # a part of a training with correlated noise has no eps of its own
        alone = None if self.recursion else self.eps()
        eps = "" if alone is None else f"; those that ran, fixed in advance, would cost eps = {text(alone, up=True)}"
        return (
            f"{words}. The step of the end may depend on what earlier steps released, so the guarantee is that of all "
            f"planned steps{eps}",
        )


def plan(
    recipe: Recipe, sizes: Mapping[str, int], before: Process | None = None, multiplier: float | None = None
) -> Plan:
    """Compute the schedule of a recipe, and the noise (or the number of steps) that meets its target.

    Args:
        multiplier: of a training that has run, in place of the least that meets the target.
    """
    train = recipe.train
    release: ReleaseSpec | None = None
    batch: float
    try:
        if train.privacy is None:
            sampling, batch = release_spec.sampling_of(train, sizes["records"])
        else:
            release = tasks.load(train.task).release(train, sizes)
            sampling, batch = release.sampling, release.batch
    except UsageError as error:
        raise UsageError(f"{recipe.name}: {error}") from None
    if train.privacy is not None and train.privacy.group > 1 and release is not None and not release.persons:
        raise Unsupported(
            f"{recipe.name}: privacy.group {train.privacy.group}: groups of records are accounted for where each "
            f"record's gradient is clipped and drawn by itself, which the task {train.task} does not do "
            f"as the recipe has it. Leave out privacy.group, or use classify with a number as clip"
        )
    if release is not None and before is not None:
        _check_earlier(recipe, train.task, release, before)
    steps, notes = _steps(recipe.name, train, sampling, batch, sizes["records"])
    earlier = () if before is None else before.steps
    draft = Plan(recipe, sizes, batch, steps, sampling, release, 0.0, earlier, notes=notes)
    if train.privacy is None:
        return draft
    if multiplier is None or train.privacy.sigma is not None:
        result = _truncate(_with_noise(draft, train.privacy), train.privacy)
    else:
        result = replace(draft, multiplier=multiplier)
    if train.privacy.adapt is not None:
        # refuse a count with too little noise before anything runs
        count_share(result.multiplier, train.privacy.adapt.count_noise or default_count_noise(batch), result.adjacency)
    _require_recursion(result)
    return result


def _require_recursion(plan: Plan) -> None:
    """Refuse a strategy whose noise does not follow from few earlier steps."""
    form = plan.recursion
    if form is not None and form.vectors and plan.train.shard_weights and plan.release is not None:
        raise Unsupported(
            f"{plan.recipe.name}: shard_weights divides the noise among processes, and {plan.release.strategy} keeps "
            f"{form.vectors} vectors of earlier noise in one. Take lambda or bisr, which draw it again"
        )


def guarantees(plan: Plan, process: Process) -> tuple[list[Guarantee], list[evaluate.Refusal]]:
    """Evaluate every accountant of the recipe on a process; return guarantees, and refusals.

    Of a training that was ended by what it released, no number holds but that of all planned steps: its end is a
    function of the releases of all of them, and so post-processing.
    """
    if not plan.scheduled:
        process = plan.process(plan.planned)

    def answer(name: str) -> Guarantee:
        row = guarantee(process, name, evaluate.answer_tol(process), plan.delta)
        return replace(row, accountant=name)  # with its options, which distinguish its answers

    return evaluate.answers(plan.train.accountants, answer)


def _check_earlier(recipe: Recipe, task: str, release: ReleaseSpec, before: Process) -> None:
    """Refuse to continue from runs that this one has no common cost with, or that released everything already."""
    if release.once:
        raise Unsupported(
            f"{recipe.name}: the task {task} releases once, and the weights here contain that release already: no run "
            f"can continue from them. Begin again with --fresh, or in another folder"
        )
    if release.adjacency != before.adjacency:
        raise Unsupported(
            f"{recipe.name} is accounted for under {release.adjacency} neighbours, and the runs before it under "
            f"{before.adjacency}: they have no common cost. Keep these neighbours (privacy.sampling, "
            f"privacy.adjacency), or train in another folder"
        )


def _steps(name: str, train: Train, sampling: Sampling, batch: float, records: int) -> tuple[int, tuple[str, ...]]:
    """The number of steps, and how it was read."""
    if sampling.kind == "allocation":
        return _steps_of_passes(name, train, sampling.pass_steps, records)
    if train.steps is not None:
        return train.steps, ()
    if sampling.kind == "none":
        assert train.epochs is not None
        return math.ceil(train.epochs), ()
    schedule = repetition(batch=int(batch), records=records, epochs=train.epochs, sampling=sampling.kind)
    assert schedule.n is not None
    return schedule.n, schedule.notes


def _steps_of_passes(name: str, train: Train, unit: int, records: int) -> tuple[int, tuple[str, ...]]:
    """The number of steps of random allocation in passes of ``unit`` steps, and how it was read."""
    assert train.batch is not None
    rounded = f", rounded, which is {records / unit:g} records a step" if train.batch * unit != records else ""
    size = f"t = {unit} steps a pass = {records} records / batch {train.batch}{rounded}; rate = 1/{unit}"
    if train.steps is None:
        assert train.epochs is not None
        passes = math.ceil(train.epochs)
        return passes * unit, (size, f"n = {passes * unit} steps = {passes} passes x {unit} steps")
    if train.steps % unit:
        above = -(-train.steps // unit) * unit
        nearest = " or ".join(str(count) for count in (above - unit, above) if count)
        raise UsageError(
            f"{name}: steps: random allocation has whole passes, here of {unit} steps ({records} records / batch "
            f"{train.batch}); found {train.steps}. Give {nearest}, or epochs in their place"
        )
    return train.steps, (size,)


def _with_noise(plan: Plan, private: Privacy) -> Plan:
    """The plan with the noise of the recipe, or with the least noise that keeps its target."""
    if private.sigma is not None:
        return replace(plan, multiplier=private.sigma / 2 if private.clip == "batch-mean" else private.sigma)
    eps = private.eps
    assert eps is not None
    accountant = private.accountant or ACCOUNTANT

    def at(sigma: float) -> Process:
        return replace(plan, multiplier=sigma).process()

    tol = evaluate.answer_tol(at(1.0))
    answer = least_noise(at, accountant, eps, plan.delta, tol)
    reached = text(answer.row.epsilon.safe, up=True, limit=eps)
    near = f"within {answer.within:.2g} (relative) of " if (answer.within or 0.0) > NEAR_LEAST else ""
    least = f"sigma = {echo(answer.value)} is {near}the least that keeps eps = {reached} <= {echo(eps)}"
    times = "once" if plan.releases(plan.steps) == 1 else f"over {plan.steps} steps"
    joint = ", as if it and the runs before it had been planned together" if plan.before else ""
    note = f"{least} {times}{joint}, by {accountant} ({answer.row.claim})"
    if plan.before:
        spent = evaluate.ask(evaluate.curve(plan.under_neighbours(plan.before), accountant, tol), delta=plan.delta)
        alone = text(spent.epsilon.safe, up=True)
        note += f"; the runs before it cost eps = {alone} alone, so that a larger privacy.eps needs less noise"
    return replace(plan, multiplier=answer.value, notes=(*plan.notes, note, *answer.warnings()))


def _truncate(plan: Plan, private: Privacy) -> Plan:
    """The plan with fewer steps if noise and target are both given and all steps would cost more than the target."""
    target = private.eps
    if private.sigma is None or target is None:
        return plan
    eps = plan.eps()
    if eps is not None and eps <= target:
        return plan
    # the statement evaluates at this width, and must not exceed the target where a narrower bracket would not
    tol = evaluate.answer_tol(plan.process())
    unit = plan.sampling.pass_steps
    parameter = Unknown("n", -1, unit, plan.steps, whole=True, unit=unit)
    limit = Target(target, plan.delta)
    answer = solve_for(parameter, lambda n: plan.process(int(n)), ACCOUNTANT, limit, tol, finest=tol)
    steps, reached = int(answer.value), text(answer.row.epsilon.safe, up=True, limit=target)
    note = (
        f"stops after {steps} of {plan.steps} steps, where eps = {reached}: "
        f"{'one more' if unit == 1 else 'another pass'} would exceed {echo(target)}"
    )
    return replace(plan, steps=steps, notes=(*plan.notes, note, *answer.warnings()))


# The duration of a recipe: as it states, or estimated from the operations of its model.

KNOWN = {
    "measured": "measured on a full run",
    "extrapolated": "extrapolated from a part of a run",
    "estimated": "estimated from the operations of the model",
}
WHERE = {"cpu": "one core", "cuda": "one GPU"}


@dataclass(frozen=True)
class Duration:
    """A time on one core (``device: cpu``) or one GPU (``cuda``).

    Args:
        known: how the time is known, a key of ``KNOWN``.
        as_shipped: whether the time is that of the recipe in its file, although keys were changed since.
    """

    seconds: float
    device: str
    known: str
    as_shipped: bool = False

    def __str__(self) -> str:
        changed = " for the recipe before keys were changed" if self.as_shipped else ""
        return f"about {duration(self.seconds)} of {WHERE[self.device]}{changed}, {KNOWN[self.known]}"

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def short_duration(time: Time | None) -> str:
    """Format a time for a column, as ``~2.7 h``; ``~`` marks times that were not measured on a full run."""
    if time is None:
        return "?"
    about, where = "" if time.known == "measured" else "~", " (GPU)" if time.device == "cuda" else ""
    return f"{about}{duration(time.seconds)}{where}"


def duration_of_plans(recipe: Recipe, plans: list[Plan], cells: int = 1) -> Duration | None:
    """Return the duration of some of a recipe's ``cells`` trainings as stated, or estimated if keys were changed.

    None if it is unknown.
    """
    stated = stated_duration(recipe, len(plans) / cells)
    if stated is not None and not stated.as_shipped:
        return stated
    seconds = [plan.cost.seconds for plan in plans if plan.cost is not None]
    return Duration(float(f"{sum(seconds):.2g}"), "cpu", "estimated") if len(seconds) == len(plans) else stated


def stated_duration(recipe: Recipe, share: float) -> Duration | None:
    """Return a share of the time that a recipe states; None if it states none."""
    if recipe.time is None:
        return None
    return Duration(recipe.time.seconds * share, recipe.time.device, recipe.time.known, recipe.changed)
