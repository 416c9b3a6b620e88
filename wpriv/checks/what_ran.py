"""What ran, from premises: the processes that bound it from both sides, and where it differs from what was accounted.

Of most samplings the two processes are one. Shuffled or stored order, draws with replacement, batches of a fixed size
and several workers have no exact pair here: a process that is at least as revealing bounds them from above, and two
data sets on which every other record contributes nothing bound them from below.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wpriv.accounting import build_process
from wpriv.checks.premises import Found, Premises, StepSpec
from wpriv.checks.run import ADD, IN_PASSES, REPLACE, ZERO, Difference, Part, Run
from wpriv.config.plain_words import plain_step
from wpriv.core.group_pairs import MAX_SAMPLED_GROUP
from wpriv.core.kinds import Sampling
from wpriv.core.mechanism import Mechanism
from wpriv.core.process import Process, Step
from wpriv.core.repetition import with_repetitions
from wpriv.errors import Unsupported, UsageError
from wpriv.numerics.numbers import short


def of_steps(specs: Iterable[StepSpec]) -> tuple[Part, ...]:
    """The parts of steps in the recipe language, equal neighbours merged; UsageError for a faulty step."""
    given = [{key: value for key, value in spec.items() if value is not None} for spec in specs]
    written = [plain_step(spec) for spec in given]
    if any("mech" not in each for each in written):
        raise UsageError("a step needs a mechanism, as in {mech: gauss, sigma: 1, n: 500}; found none")
    parts: list[Part] = []
    for spec, step in zip(given, map(build_process.step, with_repetitions(written)[0]), strict=True):
        relative, drawn = "noise_multiplier" in spec and "sensitivity" not in spec, step.sampling
        part = Part(step.mechanism, step.n, drawn.kind, drawn.rate, drawn.max_batch, drawn.parts, relative)
        alike = bool(parts) and dataclasses.replace(parts[-1], n=step.n) == part
        parts.append(dataclasses.replace(part, n=parts.pop().n + step.n) if alike else part)
    return tuple(parts)


def _is_of_clip(premises: Premises, parts: Sequence[Part]) -> bool:
    """Tell whether noise of z times the clipping norm was accounted for as if a neighbour changed no more than that."""
    z, accounted = premises.number("noise.multiplier"), _multiplier(parts)
    if premises.word("noise.relative_to") != "clip" or not z or not accounted:
        return False
    return math.isclose(accounted, z, rel_tol=1e-6)


def adjacency_of(premises: Premises) -> str:
    """The neighbours of the claim: zero-out where the number of records is public or nothing is known of it."""
    named, public = premises.word("adjacency"), premises.yes("records_public")
    if named in ("", ADD):
        return str(ZERO if public or (not named and public is None) else ADD)
    return named


def accounted_steps(premises: Premises, found: Found) -> tuple[StepSpec, ...]:
    """The steps that were accounted for; none where they are not known."""
    if steps := premises.steps("accounted") or found.accounted or found.ran:
        return steps
    n, z = premises.count("steps_accounted"), premises.number("noise.multiplier")
    rate = premises.number("sampling.rate_accounted")
    n = premises.count("steps") if n is None else n
    rate = _rate(premises) if rate is None else rate
    if not n or not z or (rate is None and premises.word("sampling.kind") != "none"):
        return ()
    drawn = {} if rate is None or rate == 1 else {"sampling": "poisson", "rate": rate}
    return ({"mech": "gauss", "noise_multiplier": z, **drawn, "n": n},)


def of(premises: Premises, found: Found) -> Run:
    """Return what ran, with the processes that bound it.

    Raises:
        UsageError: a step is faulty, or premises contradict each other in form.
    """
    adjacency, group = adjacency_of(premises), premises.count("max_per_unit") or 1
    specs, explicit = accounted_steps(premises, found), premises.steps("process") or found.ran
    accounted = of_steps(specs)
    run = Run((), adjacency, group, accounted=accounted)
    if endless := _endless(premises):
        return dataclasses.replace(run, endless=endless.words, differences=(endless,))
    differences = list[Difference]()
    parts, known = (of_steps(explicit), True) if explicit else _scheduled(premises, accounted, differences)
    if not premises.steps("process"):
        parts = _drawn(premises, parts, differences)
    factor = _noise(premises, parts, differences, fixed=bool(explicit)) if parts else 1.0
    parts = tuple(_louder(part, factor) for part in _replaced(parts, adjacency))
    if adjacency == REPLACE and not any(part.relative for part in parts) and _is_of_clip(premises, parts):
        parts = tuple(_louder(part, 2.0) for part in parts)
        words, where = "replacing a record moves the sum by 2 C", _where(premises, "noise.relative_to")
        differences.append(Difference("noise.relative_to", words, "C was accounted for", where))
    accounted, other = _replaced(accounted, adjacency), of_steps(premises.steps("composition.other"))
    other = _replaced(other, adjacency)
    runs = _composed(premises, other, differences)
    accounted_delta, delta = premises.number("claim.delta_accounted"), premises.number("claim.delta")
    if accounted_delta and delta is not None and delta < accounted_delta:
        words = f"eps belongs to delta {short(accounted_delta)}"
        where = _where(premises, "claim.delta_accounted")
        differences.append(Difference("claim.delta", words, f"{short(delta)} is claimed", where))
    run = dataclasses.replace(run, parts=(*parts, *other), accounted=accounted, differences=tuple(differences))
    try:
        run = _bounded(run, premises, parts, other, runs) if parts else run
        return run if known else dataclasses.replace(run, lowers=())
    except Unsupported as error:
        return dataclasses.replace(run, refusal=str(error))


def _replaced(parts: Sequence[Part], adjacency: str) -> tuple[Part, ...]:
    """Parts with twice the change of one record, where this is replaced and noise is relative to what one adds."""
    return tuple(_louder(part, 2.0 if part.relative and adjacency == REPLACE else 1.0) for part in parts)


def _composed(premises: Premises, other: Sequence[Part], differences: list[Difference]) -> int:
    """The number of runs on the same data; they and other releases are noted among the differences."""
    runs = max(premises.count("composition.runs") or 1, premises.count("composition.selected") or 1)
    if runs > 1:
        where = _where(premises, "composition.runs") or _where(premises, "composition.selected")
        words = f"{runs} runs touched the data"
        differences.append(Difference("composition.runs", words, "one was accounted for", where))
    if other:
        words = f"{sum(part.n for part in other)} other releases of the same data"
        differences.append(Difference("composition.other", words, "they were not accounted for"))
    return runs


def _where(premises: Premises, name: str) -> str:
    fact = premises.fact(name)
    return fact.where if fact is not None and fact.source != "declared" else ""


def _endless(premises: Premises) -> Difference | None:
    """Why no finite eps holds, whatever the numbers are."""
    stepped = premises.word("model.trained_by")
    if stepped and not is_private_optimizer(stepped):
        words = f"no private step was recorded: the optimizer that stepped is {stepped}, which adds no noise"
        return Difference("model.trained_by", words, "a private one is needed", _where(premises, "model.trained_by"))
    if premises.count("steps") == 0 or (premises.count("steps_accounted") == 0 and not premises.count("steps")):
        where = _where(premises, "steps") or _where(premises, "steps_accounted")
        return Difference("steps", "no private step was recorded", "a private training has some", where)
    for name in ("noise.multiplier", "noise.std"):
        if premises.number(name) == 0:
            words = "the noise has standard deviation 0"
            return Difference(name, words, "noise was accounted for", _where(premises, name))
    if premises.word("noise.seed") == "public":
        words = "the seed of the noise is public, so that the noise can be subtracted"
        return Difference("noise.seed", words, "a secret one is needed", _where(premises, "noise.seed"))
    return None


def is_private_optimizer(name: str) -> bool:
    """Tell whether the class of an optimizer is one that adds noise, by its name."""
    return any(word in name.rpartition(".")[2] for word in ("DP", "AdaClip", "PerLayerOptimizer", "Private"))


def _scheduled(
    premises: Premises, accounted: tuple[Part, ...], differences: list[Difference]
) -> tuple[tuple[Part, ...], bool]:
    """What was accounted for, with the rate and the number of steps that ran.

    Of several kinds of steps none is taken for less than was accounted for, since one rate or number does not say
    which of them ran so; the second value tells whether the parts are known to have run, and not only at most.
    """
    parts, known = accounted, True
    rate, count, total = _rate(premises), premises.count("steps"), sum(part.n for part in accounted)
    before = {part.rate for part in parts if part.kind != "none"}
    if rate is not None and before and not any(math.isclose(rate, each, rel_tol=1e-9) for each in before):
        told = " to ".join(dict.fromkeys(f"{each:.6g}" for each in (min(before), max(before))))
        words, where = f"sampling.rate is {rate:.6g}", _where(premises, "sampling.rate")
        worse = rate > min(before) * (1 + 1e-9)
        differences.append(Difference("sampling.rate", words, f"{told} was accounted for", where, worse))
        known = len(before) == 1
        rates = [rate if known else max(rate, part.rate) for part in parts]
        drawn = zip(parts, rates, strict=True)
        parts = tuple(dataclasses.replace(p, rate=each) if p.kind != "none" else p for p, each in drawn)
    if count and parts and count != total:
        words, where = f"{count} steps ran", _where(premises, "steps")
        differences.append(Difference("steps", words, f"{total} are accounted for", where, count > total))
        if len(parts) == 1:
            parts = (dataclasses.replace(parts[0], n=count),)
        elif count < total:
            known = False
        else:
            raise UsageError(
                f"{count} steps ran, and {total} of {len(parts)} kinds are known. Give all that ran as `process`"
            )
    return parts, known


def _rate(premises: Premises) -> float | None:
    """The probability that a record takes part, of what ran."""
    rate, batch, records = (premises.number(name) for name in ("sampling.rate", "sampling.batch", "records"))
    if rate is None and batch and records:
        return min(batch / records, 1.0)
    return rate


def _drawn(premises: Premises, parts: tuple[Part, ...], differences: list[Difference]) -> tuple[Part, ...]:
    """Parts with the kind of sampling that ran."""
    kind, before = premises.word("sampling.kind"), {part.kind for part in parts if part.kind != "none"}
    if not kind or not before or before == {kind}:
        return parts
    words, where = f"sampling is {kind}", _where(premises, "sampling.kind")
    differences.append(Difference("sampling.kind", words, f"{' and '.join(sorted(before))} was accounted for", where))
    drawn = [(part, 1.0 if kind == "none" else part.rate) for part in parts]
    return tuple(dataclasses.replace(p, kind=kind, rate=rate) if p.kind != "none" else p for p, rate in drawn)


def _louder(part: Part, factor: float) -> Part:
    """A part whose records change the release by ``factor`` times what was assumed."""
    if factor == 1:
        return part
    noise = part.mechanism.additive_noise()
    if noise is None:
        raise UsageError(
            f"{part.mechanism.name} is no additive noise, and premises of clipping, weights and standard deviations "
            f"are about such; leave them out, or give what ran as `process` with its sensitivity"
        )
    changed: Mechanism = dataclasses.replace(part.mechanism, sensitivity=noise.sensitivity * factor)  # type: ignore[call-arg]
    return dataclasses.replace(part, mechanism=changed)


def _noise(premises: Premises, parts: Sequence[Part], differences: list[Difference], *, fixed: bool) -> float:
    """By how much a record changes the parts more than they say, in units of their noise.

    Args:
        fixed: whether the parts have the noise that ran; else it may be another one than was accounted for.
    """
    z, norms = _multiplier(parts), premises.numbers("clip.norm")
    if not fixed and not z and ("noise.multiplier" in premises or "noise.std" in premises):
        raise UsageError(
            "steps of several noise multipliers were accounted for, and one noise is given for all that ran. Give what "
            "ran as `process`"
        )
    factor = 1.0 if fixed or not z else z / _multiplier_that_ran(premises, z, differences)
    tensors = premises.count("clip.tensors") or len(norms)
    scope = premises.word("clip.scope")
    # layers clipped to a norm each, and not to parts of one norm, are what tensors are
    if tensors > 1 and (scope == "per tensor" or (scope == "per layer" and len(norms) == 1)):
        # a list of norms, one for each tensor, or one norm of all of them
        factor *= math.hypot(*norms) / max(norms) if len(norms) > 1 else math.sqrt(tensors)
        words = f"clipped {scope}: the sensitivity is C sqrt({tensors})"
        differences.append(Difference("clip.scope", words, "C was accounted for", _where(premises, "clip.scope")))
    # replaced in every step, a record moves its microbatch by the 2 C of a replacement; where it is sampled, the batch
    # without it may lie at 2 C from both
    whole = adjacency_of(premises) == REPLACE and all(part.kind == "none" for part in parts)
    if premises.word("clip.per") == "microbatch" and not whole:
        factor *= 2
        words = "a microbatch is clipped as a whole: a record changes its gradient by up to 2 C"
        differences.append(Difference("clip.per", words, "C was accounted for", _where(premises, "clip.per")))
    return factor


def _multiplier(parts: Sequence[Part]) -> float | None:
    """Noise over sensitivity, where all parts have the same; None otherwise."""
    noises = [part.mechanism.additive_noise() for part in parts]
    ratios = {noise.scale / noise.sensitivity for noise in noises if noise is not None}
    return ratios.pop() if len(ratios) == 1 and None not in noises else None


def _multiplier_that_ran(premises: Premises, accounted: float, differences: list[Difference]) -> float:
    """The noise multiplier that ran: of the optimizer, of a standard deviation, or together with a noisy count."""
    given, std, count_std = (premises.number(name) for name in ("noise.multiplier", "noise.std", "clip.count_std"))
    ran, norm = given or accounted, clip_norm(premises)
    before = f"{accounted:.6g} was accounted for"
    if std and norm and premises.word("noise.relative_to") not in ("mean", "weight"):
        twice = math.isclose(std, ran * norm * norm, rel_tol=1e-3) and not math.isclose(norm, 1)
        words = f"noise.std / clip.norm is {std / norm:.6g}"
        words += ": noise was multiplied by the clipping norm twice" if twice else ""
        if not math.isclose(std, ran * norm, rel_tol=1e-6):
            differences.append(Difference("noise.std", words, before, _where(premises, "noise.std"), std < ran * norm))
        ran = std / norm
    if premises.word("clip.adaptive") == "noisy" and count_std:
        # Andrew, Thakkar, McMahan, Ramaswamy 2021, Theorem 1
        ran = (ran**-2 + (2 * count_std) ** -2) ** -0.5
        if ran < accounted * (1 - 1e-6):
            words = f"with the noise of the count of clipped records the noise multiplier is {ran:.6g}"
            differences.append(Difference("clip.adaptive", words, before, _where(premises, "clip.adaptive")))
    elif not std and not math.isclose(ran, accounted, rel_tol=1e-6):
        words, where = f"noise.multiplier is {ran:.6g}", _where(premises, "noise.multiplier")
        differences.append(Difference("noise.multiplier", words, before, where, ran < accounted))
    ran /= _relative(premises, ran, norm, differences)
    return accounted if math.isclose(ran, accounted, rel_tol=1e-6) else ran


def clip_norm(premises: Premises) -> float | None:
    """The norm that the noise multiplier is relative to: of a list, that of the list, or the largest of tensors."""
    norms = premises.numbers("clip.norm")
    if not norms:
        return None
    return max(norms) if premises.word("clip.scope") == "per tensor" else math.hypot(*norms)


def _relative(premises: Premises, ran: float, norm: float | None, differences: list[Difference]) -> float:
    """By how much the noise multiplier is too large, since it is relative to something else than a record's change."""
    relative, weight, std = (
        premises.word("noise.relative_to"),
        premises.number("sampling.max_weight"),
        premises.number("noise.std"),
    )
    if relative == "2 clip":
        return 1.0 if std else 0.5
    batch = batch_of(premises)
    if relative not in ("mean", "weight") or not weight:
        return 1.0
    times = weight * batch if relative == "mean" and batch else 1.0
    if std and norm:
        # the noise on a weighted mean, in which the largest weight is what a record changes
        times = ran * norm * weight / std
    if times > 1 + 1e-9:
        part = f"1/{batch:g}" if batch else "an equal weight"
        words = f"one {premises.word('unit') or 'record'} has weight {weight:.6g}, noise is for {part}"
        differences.append(
            Difference("divisor", words, "equal weights were accounted for", _where(premises, "divisor"))
        )
    return times


def batch_of(premises: Premises) -> int | None:
    """The number of records, or of draws, of a step: given, or rate times records; None where it is not known."""
    batch, records, rate = premises.count("sampling.batch"), premises.count("records"), premises.number("sampling.rate")
    rate = premises.number("sampling.rate_accounted") if rate is None else rate
    return batch or (round(rate * records) or None if records and rate else None)


def _bounded(run: Run, premises: Premises, parts: Sequence[Part], other: Sequence[Part], runs: int) -> Run:
    """The run with the processes that bound it from both sides."""
    workers = premises.count("sampling.workers") or 1
    differences = list(run.differences)
    if workers > 1:
        where = _where(premises, "sampling.workers")
        words = f"each record is seen once by each of {workers} workers; the rate counts one"
        if where and not where.startswith("world_size"):
            words = f"a record can be drawn {workers} times for one release; the rate counts one"
        differences.append(Difference("sampling.workers", words, "one worker", where))
    kinds = {part.kind for part in parts if part.kind != "none"}
    if len(kinds) > 1:
        raise Unsupported(f"steps of {' and of '.join(sorted(kinds))} sampling are not compared together")
    kind = next(iter(kinds), "none")
    if premises.word("divisor") == "batch" and kind in ("poisson", "cyclic-poisson"):
        words = "the sum is divided by the number of records drawn, which the size of its noise shows"
        differences.append(Difference("divisor", words, "a constant was accounted for", _where(premises, "divisor")))
    if kind == "weighted":
        differences.append(_weighted_difference(premises))
    bounds = _Bounds(run.adjacency, run.group, workers, premises, kind, runs)
    lowers, uppers = bounds.of(tuple(parts), tuple(other))
    zero_out = run.adjacency == ADD and any(process.adjacency == ZERO for process in lowers)
    batch, records = premises.count("sampling.batch"), premises.count("records")
    kept = 1.0
    if kind == "shuffle" and batch and records:
        passes = runs * sum(-(-part.n // part.pass_steps) for part in parts)
        kept = min(batch * parts[0].pass_steps / records, 1.0) ** passes
    return dataclasses.replace(
        run, lowers=lowers, uppers=uppers, zero_out=zero_out, kept=kept, differences=tuple(differences), notes=run.notes
    )


def _weighted_difference(premises: Premises) -> Difference:
    share, draws = premises.number("sampling.max_weight"), batch_of(premises)
    if share is None or draws is None:
        return Difference("sampling.max_weight", "records are drawn with weights", "equal ones were accounted for")
    words = f"a record joins a batch {share * draws:.2g} times on average, up to {draws} times"
    return Difference(
        "sampling.max_weight", words, "one copy was accounted for", _where(premises, "sampling.max_weight")
    )


@dataclass(frozen=True)
class _Bounds:
    """Builds the processes that bound parts from both sides; see the module's docstring for what bounds what."""

    adjacency: str
    group: int
    workers: int
    premises: Premises
    kind: str
    runs: int

    def of(self, parts: tuple[Part, ...], other: tuple[Part, ...]) -> tuple[tuple[Process, ...], tuple[Process, ...]]:
        """The processes that bound from below, and those that bound from above."""
        one = self.group == 1 and self.workers == 1
        if self.kind in ("none", "poisson", "cyclic-poisson"):
            steps = self._plain(parts, other)
            persons = self.group * self.workers
            if self.kind != "none" and persons > MAX_SAMPLED_GROUP:
                fewer = self._process(steps, MAX_SAMPLED_GROUP)
                return (fewer,), (self._process([_unsampled(step) for step in steps], persons),)
            process = self._process(steps, persons)
            if self.kind != "none" and self.premises.word("divisor") == "batch":
                return (), (self._process([_unsampled(step) for step in steps], persons),)
            return (process,), (process,)
        whole = [Step(part.mechanism, n) for part, n in self._passes(parts, up=True) if n] + self._others(other)
        uppers = (self._process(whole, self.group * self.workers * (self._draws() if self.kind == "weighted" else 1)),)
        if self.kind == "order":
            return self._order(uppers)
        if self.kind == "weighted":
            return self._weighted(parts), uppers if self.adjacency == ZERO else ()
        if self.kind == "fixed":
            return self._fixed(parts, other, uppers)
        if self.kind == "allocation":
            return self._allocation(parts, other, uppers)
        lowers = self._sum_of_pass(parts) if not one else ()
        if self.workers == 1 and self.adjacency != REPLACE:
            steps = [
                Step(p.mechanism, n * p.pass_steps, Sampling("shuffle", 1 / p.pass_steps))
                for p, n in self._passes(parts, up=False)
                if n
            ]
            lowers += (Process(tuple(steps + self._others(other)), str(ZERO)),) if steps else ()
        if one and self.adjacency == ZERO and lowers and not any(part.n % part.pass_steps for part in parts):
            return lowers, lowers
        return lowers, uppers if self.adjacency != ADD else ()

    def _passes(self, parts: Sequence[Part], *, up: bool) -> list[tuple[Part, int]]:
        """Each part with the number of its passes in all runs; of other samplings, each step is one."""
        rows = []
        for part in parts:
            steps = part.pass_steps if self.kind in IN_PASSES else 1
            rows.append((part, self.runs * (-(-part.n // steps) if up else part.n // steps)))
        return rows

    def _others(self, other: Sequence[Part]) -> list[Step]:
        return [part.step() for part in other]

    def _plain(self, parts: Sequence[Part], other: Sequence[Part]) -> list[Step]:
        """Steps without sampling, or with Poisson sampling of a whole or of the part whose turn it is."""
        bands = self.premises.count("sampling.bands") or 1 if self.kind == "cyclic-poisson" else 1
        cut = self.premises.count("sampling.truncated") or 0 if self.kind == "poisson" else 0
        steps = []
        for part in parts:
            drawn = Sampling("poisson", part.rate, cut or part.max_batch, max(bands, part.bands))
            sampling = drawn if part.kind != "none" else Sampling()
            steps.append(Step(part.mechanism, self.runs * -(-part.n // bands), sampling))
        return steps + self._others(other)

    def _process(self, steps: Sequence[Step], group: int) -> Process:
        """A process on the neighbours of the claim; of a group zeroing out is what removing is, null records being no
        records to a sum."""
        adjacency = self.adjacency
        options = group > 1 or any(step.sampling.parts > 1 for step in steps)
        if adjacency == ZERO and options:
            adjacency = str(ADD)
        cut = any(step.sampling.max_batch for step in steps)
        return Process(tuple(steps), adjacency, group, (self.premises.count("records") or 0) if cut else 0)

    def _draws(self) -> int:
        draws = batch_of(self.premises)
        if draws is None:
            raise Unsupported("the number of draws of a step is not known: give `sampling.batch`, or `records`")
        return draws

    def _order(self, uppers: tuple[Process, ...]) -> tuple[tuple[Process, ...], tuple[Process, ...]]:
        """Stored order: each record is in one known step of a pass; without it, all that follow move."""
        if self.adjacency == ADD:
            zero = tuple(dataclasses.replace(each, adjacency=str(ZERO)) for each in uppers if each.group == 1)
            return zero, ()
        return (uppers, uppers) if self.workers == 1 else ((), uppers)

    def _weighted(self, parts: Sequence[Part]) -> tuple[Process, ...]:
        """Where all others contribute nothing, a record's copies in a step are Binomial(draws, its share)."""
        share = self.premises.number("sampling.max_weight")
        if share is None:
            return ()
        count = min(self._draws() * self.workers, MAX_SAMPLED_GROUP)
        steps = tuple(Step(part.mechanism, self.runs * part.n, Sampling("poisson", share)) for part in parts)
        return (Process(steps, str(ADD), count),)

    def _fixed(
        self, parts: Sequence[Part], other: Sequence[Part], uppers: tuple[Process, ...]
    ) -> tuple[tuple[Process, ...], tuple[Process, ...]]:
        """Batches of a fixed size: exact for replace-one; zeroing out is replacing, by at most twice the change."""
        records = self.premises.count("records") or 0
        if self.adjacency == REPLACE and self.workers == 1:
            steps = [Step(p.mechanism, self.runs * p.n, Sampling("fixed", p.rate)) for p in parts] + self._others(other)
            process = Process(tuple(steps), str(REPLACE), self.group, records if self.group > 1 else 0)
            return (process,), (process,)
        drawn = [Step(p.mechanism, self.runs * p.n, Sampling("poisson", p.rate)) for p in parts] + self._others(other)
        lowers = (Process(tuple(drawn), str(ZERO)),)
        if self.adjacency == ZERO and self.workers == self.group == 1 and not other:
            twice = [_louder(part, 2.0) for part in parts]
            steps = [Step(p.mechanism, self.runs * p.n, Sampling("fixed", p.rate)) for p in twice]
            uppers = (Process(tuple(steps), str(REPLACE)), *uppers)
        return lowers, uppers if self.adjacency != ADD else ()

    def _allocation(
        self, parts: Sequence[Part], other: Sequence[Part], uppers: tuple[Process, ...]
    ) -> tuple[tuple[Process, ...], tuple[Process, ...]]:
        """Random allocation: exact for one record; a pass cut short lies between none and a whole one."""
        if self.workers > 1 or self.adjacency == REPLACE:
            return (), uppers

        def allocated(up: bool) -> tuple[Process, ...]:
            rows = [(p, n * p.pass_steps) for p, n in self._passes(parts, up=up) if n]
            steps = [Step(p.mechanism, n, Sampling("allocation", 1 / p.pass_steps)) for p, n in rows]
            return (Process(tuple(steps + self._others(other)), self.adjacency),) if steps else ()

        return allocated(False), allocated(True) if self.group == 1 else uppers

    def _sum_of_pass(self, parts: Sequence[Part]) -> tuple[Process, ...]:
        """All releases of a pass added up, where all other records contribute nothing: one release of more noise."""
        steps = []
        for part, n in self._passes(parts, up=False):
            noise = part.mechanism.additive_noise()
            if noise is None or not noise.is_textbook("gauss"):
                return ()
            factor = self.group * self.workers / math.sqrt(part.pass_steps)
            steps += [Step(_louder(part, factor).mechanism, n)] if n else []
        return (Process(tuple(steps), str(ZERO)),) if steps else ()


def _unsampled(step: Step) -> Step:
    return Step(step.mechanism, step.n)


def shows_size(premises: Premises) -> bool:
    """Tell whether what the noisy sum is divided by follows the number of records, which is secret."""
    whole = premises.word("divisor") == "batch" and premises.word("sampling.kind") in ("", "none")
    return premises.yes("records_public") is False and (whole or premises.word("divisor") == "expected")


def secret_divisors(premises: Premises) -> tuple[int, int, int] | None:
    """Two divisors int(records x rate) of data sets that differ by one record, and the coordinates of all releases.

    The data sets are those of the largest number of records, at or below that which ran, at which the divisor
    changes. None where the divisor is a constant, the number of records is public, or something is not known.
    """
    rate = premises.number("sampling.rate") or premises.number("sampling.rate_accounted")
    rate = 1.0 if premises.word("sampling.kind") == "none" else rate
    records, steps = premises.count("records"), premises.count("steps") or premises.count("steps_accounted")
    if not shows_size(premises) or not rate or not records or not steps:
        return None
    larger = max(math.floor(records * rate * (1 + 1e-12)), 2)
    return larger, larger - 1, steps * (premises.count("model.parameters") or 1)
