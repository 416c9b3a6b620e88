"""The verb ``verify_claim``, claims under every interpretation, published claims, and processes as users name them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from wpriv.accounting import build_process, interpretations
from wpriv.accounting.build_process import DescribedProcess
from wpriv.accounting.claims.decide import decide
from wpriv.accounting.claims.decision import OPEN, Decision, Question
from wpriv.accounting.interpretations import Interpretation
from wpriv.config import plain_words
from wpriv.config.plain_words import Claim, in_plain_words, parse_claim
from wpriv.config.recipe import Recipe
from wpriv.config.schema import Verify
from wpriv.core.mechanism import Mechanism
from wpriv.core.process import Process
from wpriv.errors import CheckFailed, Unsupported, UsageError, of_file
from wpriv.files import STDIN, read_bytes, shown_path
from wpriv.files.durable_writes import unique_keys
from wpriv.numerics.numbers import shown, whole
from wpriv.results import storage


@dataclass(frozen=True)
class Decided:
    """The decision on a claim; None where no accountant with proven bounds has an answer, for the ``reason``."""

    decision: Decision | None
    reason: str

    @property
    def verdict(self) -> str:
        """proved, refuted or open; a claim without any proven bound is open."""
        return OPEN if self.decision is None else self.decision.verdict


@dataclass(frozen=True)
class Reading(Decided):
    """The verdict under one interpretation: the step, its adjacency, and the assumption in words."""

    interpretation: Interpretation

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of the command line."""
        spec = self.interpretation.spec
        about = {
            "assumption": self.interpretation.assumption,
            "sampling": spec.get("sampling", "none"),
            "n": spec["n"],
            "rate": spec.get("rate"),
            "adjacency": self.interpretation.adjacency,
            "verdict": self.verdict,
            "reason": self.reason,
        }
        return about if self.decision is None else {**self.decision.as_dict(), **about}


def decide_readings(spec: Mapping[str, Any], claim: Claim, *, tol: float | None = None) -> list[Reading]:
    """Decide a claim about one step specification under every interpretation of it, without simulations.

    Raises:
        UsageError: the step is faulty. Unsupported: the mechanism has one relation of neighbours only.
    """

    def asked(each: Interpretation) -> Question:
        return Question(claim, each.process(), tol=tol, simulated=False)

    # the other accountants bound the same curve
    every = interpretations.interpretations_of(spec)
    every = [each for each in every if each.accountant == "pld" and each.divisors is None]
    return [Reading(*_decided(partial(asked, each)), each) for each in every]


def _decided(asked: Callable[[], Question]) -> tuple[Decision | None, str]:
    """The decision, if an accountant with proven bounds has an answer, and the reason."""
    try:
        decision = decide(asked())
    except Unsupported as error:
        return None, str(error)
    return decision, decision.reason


@dataclass(frozen=True)
class PublishedVerdict(Decided):
    """The verdict on one published claim, where it was published, and the verdict that the recipe expects, if any."""

    name: str
    source: str
    expected: str | None
    claim: str

    @property
    def is_expected(self) -> bool:
        """True if the verdict is the expected one, or if the recipe expects none."""
        return self.expected in (None, self.verdict)

    def as_dict(self) -> dict[str, Any]:
        """The JSON object of the command line."""
        about = {"name": self.name, "source_of_claim": self.source, "expected": self.expected}
        decided = {} if self.decision is None else self.decision.as_dict()
        return {**about, **decided, "verdict": self.verdict, "reason": self.reason}


def decide_published(
    recipe: Recipe, *, simulated: bool = True, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> list[PublishedVerdict]:
    """Decide every claim of a recipe of kind verify, in its order."""
    model = Verify.model_validate(recipe.data)
    verdicts = []
    for index, entry in enumerate(model.published):
        claim = parse_claim(entry.claim)
        steps = [step.model_dump(exclude_none=True) for step in entry.process]
        subject = build_process.described_steps(steps, entry.adjacency, entry.group)
        decided = _decided(partial(Question, claim, subject.process, subject.notes, simulated=simulated, seed=seed))
        verdicts.append(PublishedVerdict(*decided, entry.name, entry.source, entry.verdict, str(claim)))
        if progress is not None:
            progress(index + 1, len(model.published))
    return verdicts


def require_expected(name: str | Path, verdicts: list[PublishedVerdict]) -> None:
    """Raise CheckFailed where a verdict is not the expected one."""
    wrong = [row for row in verdicts if not row.is_expected]
    if wrong:
        first, more = wrong[0], f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        found = f"it is {first.verdict}: {first.reason}{more}"
        raise CheckFailed(f"{name}: wanted {first.name!r} to be {first.expected}; {found}")


@in_plain_words
def verify_claim(
    claim: str | Claim,
    mech: str | Mechanism | Process | None = None,
    *,
    accountant: str | None = None,
    tol: float | None = None,
    simulate: bool = True,
    seed: int = 0,
    **described: Any,
) -> Decision:
    """Decide a claim about a process: proved, refuted with the test that breaks it, or open.

    Args:
        claim: ``"eps=3,delta=1e-5"``, ``"eps=1"`` (pure DP), ``"mu=1"``, ``"mu=1,fpr=1e-9"``, ``"rho=0.5"`` or
            ``"xi=0.1,rho=0.5"``.
        mech: a mechanism, a ``Process`` or the name of a mechanism, with the keywords of ``budget`` for the rest.
        accountant: the accountant that decides (default: pld, or rdp and zcdp where pld has no answer).
        tol: relative width asked of a certified bracket.
        simulate: whether the test of a refuted claim is simulated, where the simulation is large enough to show it.
        seed: of the simulation.
    Raises:
        UsageError: an argument is wrong. Unsupported: no accountant with proven bounds answers for this process.

    >>> verify_claim("eps=0.9,delta=1e-5", "gauss", sigma=4).verdict
    'refuted'
    >>> verify_claim("eps=1,delta=1e-5", "gauss", sigma=4).verdict
    'proved'
    """
    if not isinstance(claim, (str, Claim)):
        raise UsageError(f"`claim` is a text such as 'eps=3,delta=1e-5'; found {shown(claim)}")
    wanted = parse_claim(claim) if isinstance(claim, str) else claim
    subject = build_process.described_process(mech, **described)
    width = build_process.question(tol=tol).get("tol")
    number = whole(seed, "`seed`")
    if number < 0:
        raise UsageError(f"`seed` is a whole number of at least 0; found {number}")
    return decide(
        Question(wanted, subject.process, subject.notes, accountant or "", width, simulated=bool(simulate), seed=number)
    )


# Processes as a shell user names them: a file, a folder, a recipe, or words such as "gauss sigma=4".

FORMS = (
    'the folder of a training, a recipe of kind budget, a guarantee (--json) or a certificate, or words such as "gauss '
    'sigma=4 n=1000 poisson 0.01", several steps joined by " + "'
)
SUFFIXES = (".json", ".jsonl")
MAX_BYTES = 2**24


def described(text: str | Path) -> DescribedProcess:
    """The process that a text names; UsageError for a faulty one, MissingResource for a file."""
    word = str(text)
    if not word.strip():
        raise UsageError(f"wanted a process: {FORMS}; found an empty text")
    if word == STDIN:
        # JSON, a recipe, or words
        given = read_bytes(STDIN, MAX_BYTES).decode("utf-8", "replace").strip()
        if given[:1] in ("{", "["):
            return _of_json(Path(STDIN))
        return _of_recipe(STDIN) if ":" in given else described(given if given != STDIN else "")
    path = Path(word)
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError):
        is_folder = is_file = False
    if is_folder:
        if _is_tuned(path / storage.STATEMENT):
            raise _best_run(word)
        return build_process.described_process(history=str(path / storage.LEDGER))
    if path.suffix in SUFFIXES and (is_file or " " not in word):
        return _of_json(path)
    if not is_file and (plain_words.is_sentence(word) or " " in word.strip()):
        words = plain_words.parse(word)
        return build_process.described_steps(words.steps, **words.shared)
    return _of_recipe(word)


def _of_json(path: Path) -> DescribedProcess:
    """The process of a guarantee or of a certificate, or else of a history."""
    try:
        content = read_bytes(path, MAX_BYTES)
    except OSError as error:
        raise of_file(error, path, "read", f"give {FORMS}") from None
    try:
        data = json.loads(content, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and isinstance(data.get("process"), list):
        steps = [dict(step) for step in data["process"] if isinstance(step, dict)]
        if len(steps) != len(data["process"]) or not steps:
            raise UsageError(
                f"{shown_path(path)}: `process` must be a list of steps; found {str(data['process'])[:80]}"
            )
        if "repeats" in data:
            raise _best_run(shown_path(path))
        if data.get("records"):
            steps = [{**step, "records": data["records"]} for step in steps]
        adjacency = data.get("adjacency")
        return build_process.described_steps(steps, None if adjacency is None else str(adjacency), data.get("group"))
    return build_process.described_process(history=str(path))


def _of_recipe(name: str) -> DescribedProcess:
    from wpriv.accounting import load_recipe

    loaded = load_recipe.read(name)
    if loaded.kind == "budget":
        described, _, question = load_recipe.budget(name)
        if "repeats" in question:
            raise _best_run(shown_path(name))
        return described
    advice = "give the folder of its training" if loaded.kind == "train" else "give its process in words"
    raise UsageError(
        f"{shown_path(name)} is a recipe of kind {loaded.kind!r}, which describes no single process; {advice}: {FORMS}"
    )


def _is_tuned(statement: Path) -> bool:
    """Tell whether a statement is that of the best of several runs; one that cannot be read is left to its readers."""
    try:
        return "tuning" in json.loads(statement.read_text(encoding="utf-8"))
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def _best_run(name: str) -> Unsupported:
    """The refusal of the best of K runs, of which only upper bounds are known."""
    return Unsupported(
        f"{name} is about the best of a random number of runs (repeats), whose curve is known from above only, and "
        f"which is no process of steps. Leave out repeats for one run, or ask `wpriv budget`"
    )
