"""The verdict of a check in words: one line for each thing that a reader needs, and the same as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wpriv.accounting.claims.decision import PROVED, REFUTED, Decision
from wpriv.checks.judge import (
    CONTRADICTED,
    ESTIMATES,
    INCOMPLETE,
    Answer,
    Judgement,
    Missing,
    decided,
    implied_claim,
    shown,
    where_kept,
)
from wpriv.checks.premises import COMPUTED, DECLARED, Premises, Value
from wpriv.checks.run import ADD, ZERO, Difference
from wpriv.core.process import MAX_STEPS
from wpriv.errors import Unsupported, UsageError
from wpriv.files.shown import Shown
from wpriv.numerics.numbers import echo, short, text

# an eps that nobody would state
LARGE = 100.0
ESTIMATED = "an estimate was quoted as a guarantee"
EXITS = {PROVED: 0, REFUTED: 1, CONTRADICTED: 1, INCOMPLETE: 3}
# what may be changed, by the premise, where the reader has nothing better
CHANGES = {
    "sampling.kind": "draw the batches by Poisson sampling",
    "sampling.rate": "account for the rate that ran",
    "sampling.max_weight": "draw all records with equal weights",
    "sampling.workers": "give each worker its own part of the data",
    "steps": "account for the steps that ran",
    "noise.multiplier": "account for the noise that was added",
    "noise.std": "add noise of noise multiplier x clipping norm",
    "noise.seed": "draw the noise from a secret seed",
    "clip.scope": "clip all tensors of a record together",
    "clip.per": "clip each record by itself",
    "clip.adaptive": "account for the noisy counts",
    "composition.runs": "account for all runs on the data",
    "composition.other": "account for all releases of the data",
    "divisor": "divide by a public constant",
    "model.trained_by": "step the private optimizer",
}


@dataclass(frozen=True, repr=False)
class Verdict(Shown):
    """The verdict of a check.

    Args:
        verdict: ``proved``, ``refuted``, ``contradicted`` or ``incomplete``.
        judgement: what it rests on: the claim, the premises with their sources, and the answer under them.
        subject: what was checked: a file as the user named it, or the library of an object.
        is_object: whether it is an object, whose premises are declared in Python.
    """

    verdict: str
    judgement: Judgement
    subject: str
    is_object: bool = False

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 0 proved, 1 refuted or contradicted, 3 incomplete."""
        return EXITS[self.verdict]

    @property
    def epsilon(self) -> tuple[float, float] | None:
        """Both ends of eps at the claimed delta; None where there is none, infinite where no finite eps holds."""
        return None if self.judgement.answer is None else self.judgement.answer.epsilon

    @property
    def decision(self) -> Decision | None:
        """The decision on the claim, with its test; None where no process was decided."""
        return None if self.judgement.answer is None else self.judgement.answer.decision

    @property
    def missing(self) -> tuple[Missing, ...]:
        """The premises that are missing, each with the verdict under each value that it may take."""
        return self.judgement.missing

    @property
    def adjacency(self) -> str:
        """The neighbours of the claim; "" without a claim."""
        return "" if self.judgement.answer is None else self.judgement.answer.run.adjacency

    @property
    def premises(self) -> Premises:
        """The premises, each with where it was found."""
        return self.judgement.premises

    def sentence(self) -> str:
        it, answer = self.judgement, self.judgement.answer
        claim = "any finite eps" if answer is not None else "the claim"
        claim = claim if it.claim is None else str(it.claim if answer is None else answer.claim)
        if self.verdict == INCOMPLETE:
            return f"{claim} is not decided: {self._undecided()}"
        assert answer is not None
        if self.verdict == CONTRADICTED:
            return f"{claim} is contradicted for {self.adjacency} neighbours: {it.conflicts[0][0]}"
        return f"{claim} is {self.verdict} for {self.adjacency} neighbours: {answer.reason}"

    def _undecided(self) -> str:
        missing, answer = self.missing, self.judgement.answer
        if missing:
            are = "1 premise is" if len(missing) == 1 else f"{len(missing)} premises are"
            return f"{are} missing from {self.subject}"
        return "nothing is known of what ran" if answer is None else answer.reason

    def facts(self) -> list[tuple[str, str]]:
        """Return all lines below the first one, each a label with its text."""
        answer = self.judgement.answer
        fact = self.premises.fact("claim.eps")
        is_read = fact is None or fact.source != COMPUTED
        rows = [] if self.verdict == INCOMPLETE and self.missing and is_read else [*self._claimed()]
        if answer is not None and self.verdict == PROVED:
            rows += self._reading(answer)
        worse = [each for each in answer.run.differences if each.worse] if answer is not None else []
        if answer is not None and self.verdict == REFUTED:
            rows += [("contradicted", _contradicted(each)) for each in worse]
            rows += [("contradicted", ESTIMATED)] if self.is_estimate and not worse else []
        if self.verdict == CONTRADICTED:
            rows += self._conflicts()
        if answer is not None and not self.missing:
            rows += self._numbers(answer)
        if answer is not None and self.verdict == REFUTED:
            rows += self._refutation(answer, worse)
        else:
            rows += self._sources()
        rows += self._asked()
        rows += [("note", note) for note in self._notes()]
        if self.verdict == PROVED and self.decision is not None and self.decision.source:
            rows.append((f"by {self.decision.accountant}".rstrip(), self.decision.source))
        return rows

    def _claimed(self) -> Iterator[tuple[str, str]]:
        """The claim, who made it, and whether it is a bound."""
        premises, claim = self.premises, self.judgement.claim
        if claim is None:
            return
        answer, by = self.judgement.answer, premises.word("claim.by") or self.judgement.found.name
        words = str(claim)
        if claim.notion == "approximate-dp":
            eps = claim.eps if answer is None else answer.claim.eps
            words = f"eps = {echo(eps)} at delta = {short(claim.delta)}"
        fact = premises.fact("claim.eps")
        is_given = "claim.by" not in premises and (fact is None or fact.source == DECLARED)
        words += "" if is_given else f" by {_by(by)}"
        if self.verdict == REFUTED and answer is not None:
            kinds = {part.kind for part in answer.run.accounted if part.kind != "none"}
            drawn = any(each.field == "sampling.kind" for each in answer.run.differences)
            words += f", for {' and '.join(sorted(kinds))} sampling" if drawn else ""
        fact = premises.fact("claim.eps")
        if fact is not None and fact.source == COMPUTED:
            words += f" ({fact.where})"
        if answer is not None and answer.notes:
            words += f"; {answer.notes[0]}"
        if self.is_estimate:
            words += "; this is an estimate, and no bound"
        yield "claimed", words

    @property
    def is_estimate(self) -> bool:
        """Whether the claimed figure is an estimate: a central limit, or an audit."""
        by = self.premises.word("claim.by").lower()
        return self.premises.word("claim.kind") == "estimate" or any(word in by.split() for word in ESTIMATES)

    def _reading(self, answer: Answer) -> Iterator[tuple[str, str]]:
        run = answer.run
        drawn = list(
            dict.fromkeys(
                f"{p.kind} sampling at rate {p.rate:.6g}" if p.kind != "none" else "no sampling" for p in run.parts
            )
        )
        sampling = drawn[0] if len(drawn) == 1 else f"{len(drawn)} samplings"
        group = f", groups of {run.group} records" if run.group > 1 else ""
        count = f"n = {run.total} composition{'s' * (run.total > 1)}"
        yield "reading", f"{run.adjacency} neighbours{group}, {sampling}, {count}"

    def _numbers(self, answer: Answer) -> Iterator[tuple[str, str]]:
        parts = answer.run.parts
        yield from (("process", part.words()) for part in parts[:MAX_STEPS])
        if len(parts) > MAX_STEPS:
            yield "process", f"and {len(parts) - MAX_STEPS} more kinds of step"
        ends, delta = answer.epsilon, answer.claim.delta
        if ends is None or answer.claim.notion != "approximate-dp":
            return
        low, high = text(ends[0], up=False), text(ends[1], up=True)
        words = (
            "no finite eps" if math.isinf(ends[0]) else f"at least {low}" if math.isinf(ends[1]) else f"[{low}, {high}]"
        )
        yield f"eps at delta = {short(delta)}", words

    def _refutation(self, answer: Answer, worse: list[Difference]) -> Iterator[tuple[str, str]]:
        """The claim for other neighbours, the test, and what to change."""
        decision, run = answer.decision, answer.run
        if run.adjacency == ZERO and run.parts and any(part.kind not in ("none", "poisson") for part in run.parts):
            yield from self._for_add_remove(answer)
        if decision is not None and decision.test is not None:
            bound = text(decision.test.delta_lower, up=False)
            words = f'say "in" where the privacy loss exceeds {decision.test.threshold:.6g}'
            yield "test", f"{words}; TPR - e^eps FPR at least {bound}"
        changes = dict(self.judgement.found.changes)
        first = next((changes.get(each.field) or CHANGES.get(each.field, "") for each in worse), "")
        ends = answer.epsilon
        eps = math.inf if ends is None else ends[1]
        whole = eps <= LARGE and not self.judgement.found.left_out
        holds = f"state eps = {text(eps, up=True)} for {run.adjacency} neighbours" if whole else ""
        if words := ", or ".join(filter(None, (first, holds))):
            yield "change", words

    def _for_add_remove(self, answer: Answer) -> Iterator[tuple[str, str]]:
        """Whether the figure is refuted for add-remove neighbours as well, through what it implies for zero-out."""
        implied = implied_claim(answer.claim)
        if implied is None or answer.decision is None:
            return
        for process in answer.run.lowers:
            kept = where_kept(implied, answer.run.kept)
            decision = None if kept is None else decided(process, kept)
            if decision is None or decision.delta is None:
                continue
            low = text((decision.delta.lower or 0.0) * answer.run.kept, up=False)
            at = f"delta({text(implied.eps, up=True)}) at most {text(implied.delta, up=True)}; found at least {low}"
            if decision.verdict == REFUTED:
                yield "add-remove", f"refuted as well, since it would give {at}"
                return
        yield "add-remove", "not refuted: a figure for zero-out neighbours breaks it only through what it implies there"

    def _conflicts(self) -> Iterator[tuple[str, str]]:
        for words, verdicts in self.judgement.conflicts:
            yield "contradicted", words
            if verdicts:
                yield "under each", verdicts

    def _sources(self) -> Iterator[tuple[str, str]]:
        """What was read, declared and assumed."""
        read = self.judgement.found.read
        if read:
            yield "read", ", ".join(read)
        if self.verdict == INCOMPLETE and self.missing:
            return
        if words := list(_declared(self.premises)):
            yield "declared", ", ".join(words)
        if words := list(_assumed(self.premises)):
            yield "assumed", ", ".join(words)

    def _asked(self) -> Iterator[tuple[str, str]]:
        """The premises that are missing, with the verdict under each value, and how to declare one."""
        if not self.missing:
            return
        width = max(len(each.field) for each in self.missing) + 2
        for each in self.missing:
            under = "; ".join(f"{shown(value)}: {words}" for value, words in each.under)
            yield "missing", f"{each.field.ljust(width)}{under}".rstrip()
        first = self.missing[0]
        value = shown(first.under[0][0]) if first.under else "VALUE"
        more = ", or give the loader from Python" if first.field.startswith("sampling") else ""
        if self.is_object:
            more = ", or give loader=" if first.field.startswith("sampling") else ""
            yield "declare", f'premises={{"{first.field}": "{value}"}}{more}'
        else:
            yield "declare", f"wpriv check {self.subject} --premise {first.field}={value}{more}"

    def _notes(self) -> Iterator[str]:
        """Remarks of the reader, what was accounted for beyond what ran, and how the neighbours were read."""
        yield from self.judgement.found.notes
        answer = self.judgement.answer
        if answer is None:
            return
        if self.premises.word("steps_source") == "planned":
            yield "the number of steps is a planned one: nothing shows that so many ran"
        if self.premises.word("released") == "metrics":
            yield "metrics on training records are releases of their own: declare them as composition.other"
        yield from answer.run.notes
        for each in answer.run.differences:
            if not each.worse:
                yield f"{each.words}, {each.accounted}: the claim holds, and is looser than need be"
        if self.premises.word("adjacency") == ADD and self.adjacency == ZERO:
            yield "the number of records is public, so that neighbours have the same number: stated for zero-out"
        if answer.verdict == PROVED and answer.epsilon and answer.claim.eps > 2 * answer.epsilon[1] > 0:
            yield f"the claim is {answer.claim.eps / answer.epsilon[1]:.2g} times what ran{_least_noise(answer)}"

    def lines(self) -> list[str]:
        """The verdict, all that it rests on, and what fails, a line each; also what ``print`` shows."""
        failure = [f"wpriv: {self.failure()}"] if self.exit_code else []
        return [self.sentence(), *(f"{label}: {words}" for label, words in self.facts()), *failure]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def failure(self) -> str:
        """The last line of a failure, which standard error has as well; "" where the claim is proved."""
        if self.verdict == PROVED:
            return ""
        if self.verdict == INCOMPLETE:
            if not self.missing:
                return self.sentence()
            return f"{self.subject} lacks {', '.join(each.field for each in self.missing)}"
        answer = self.judgement.answer
        assert answer is not None
        if self.verdict == CONTRADICTED:
            why = self.judgement.conflicts[0][0]
        else:
            worse = [each for each in answer.run.differences if each.worse]
            why = ESTIMATED if self.is_estimate else answer.reason
            why = f"{worse[0].words}, {worse[0].accounted}" if worse else why
        claim = "any finite eps" if self.judgement.claim is None else f"the claim {answer.claim}"
        return f"{claim} is {self.verdict}: {why}"

    def as_dict(self) -> dict[str, object]:
        """The JSON object of the command line (schema ``wpriv.check/1``), with infinities still floats."""
        it, ends = self.judgement, self.epsilon
        answer = it.answer
        facts = it.premises.facts.values()
        return {
            "verdict": self.verdict,
            "subject": self.subject,
            "source": it.found.name,
            "claim": None if it.claim is None else it.claim.as_dict(),
            "claimed_by": it.premises.word("claim.by"),
            "estimate": self.is_estimate,
            "adjacency": self.adjacency,
            "group": None if answer is None else answer.run.group,
            "process": [] if answer is None else [part.words() for part in answer.run.parts],
            "epsilon_lower": None if ends is None else ends[0],
            "epsilon_upper": None if ends is None else ends[1],
            "reason": self.sentence(),
            "premises": [{"field": f.field, "value": f.value, "source": f.source, "where": f.where} for f in facts],
            "differences": [] if answer is None else [vars(each) for each in answer.run.differences],
            "contradictions": [words for words, _ in it.conflicts],
            "missing": [
                {"field": each.field, "under": [{"value": value, "verdict": words} for value, words in each.under]}
                for each in it.missing
            ],
            "facts": [[label, words] for label, words in self.facts()],
            "exit_code": self.exit_code,
        }


def _least_noise(answer: Answer) -> str:
    """The noise with which the claim would just hold, of Gaussian steps of one kind; "" where it is not known."""
    from wpriv.accounting.calibrate import calibrate

    run, part = answer.run, answer.run.parts[0]
    noise = part.mechanism.additive_noise()
    exact = len(run.parts) == 1 and run.group == 1 and part.kind in ("none", "poisson") and run.lowers == run.uppers
    if not exact or noise is None or not noise.is_textbook("gauss") or not answer.claim.delta:
        return ""
    kind, rate = (None, None) if part.kind == "none" else (part.kind, part.rate)
    claim, size = answer.claim, noise.sensitivity
    try:
        least = calibrate(
            "gauss",
            eps=claim.eps,
            delta=claim.delta,
            n=part.n,
            sampling=kind,
            rate=rate,
            adjacency=run.adjacency,
            sensitivity=size,
        ).value
    except (Unsupported, UsageError):
        return ""
    return f"; sigma {text(least, up=True, digits=4)} would do" if least < noise.scale else ""


def _by(name: str) -> str:
    """``opacus 1.6.0, prv`` for ``opacus 1.6.0 prv``: the accountant is the last word behind a version."""
    words = name.split()
    versioned = len(words) > 2 and words[-2][:1].isdigit() and not words[-1][:1].isdigit()
    return f"{' '.join(words[:-1])}, {words[-1]}" if versioned else name


def _contradicted(each: Difference) -> str:
    return f"{each.words}; {each.where}" if each.where else f"{each.words}, {each.accounted}"


def _declared(premises: Premises) -> Iterator[str]:
    """What no object shows, as it was declared, and how many premises more were."""
    names = {name for name, fact in premises.facts.items() if fact.source == DECLARED}
    records, other = premises.count("max_per_unit") or 1, premises.steps("composition.other")
    runs, best = premises.count("composition.runs") or 1, premises.count("composition.selected") or 0
    words = {
        "max_per_unit": "one record a person" if records == 1 else f"up to {records} records a person",
        "records_public": f"size of the data {'public' if premises.yes('records_public') else 'secret'}",
        "noise.seed": f"seed {'public' if premises.word('noise.seed') == 'public' else 'secret'}",
        "composition.other": f"{len(other)} kinds of other releases" if other else "no other release",
        "composition.runs": f"{runs} runs" if runs > 1 else "",
        "composition.selected": f"the best of {best} runs" if best else "",
    }
    yield from (text for name, text in words.items() if name in names and text)
    if more := [name for name in names - words.keys() if name.partition(".")[0] != "claim"]:
        yield (
            f"and {len(more)} more premises"
            if len(more) > 3
            else ", ".join(sorted(f"{name} {_short(premises.facts[name].value)}" for name in more))
        )


def _short(value: Value) -> str:
    """A value in a few words; steps are shown above, as processes."""
    steps = isinstance(value, tuple) and any(isinstance(each, Mapping) for each in value)
    return f"of {len(value)} kinds of step" if steps and isinstance(value, tuple) else shown(value)


def _assumed(premises: Premises) -> Iterator[str]:
    """What is taken to be so where nothing says otherwise."""
    if "noise.seed" not in premises:
        yield "seed secret"
    if "composition.runs" not in premises and "composition.selected" not in premises:
        yield "one run"
    if "composition.other" not in premises:
        yield "no other release"
