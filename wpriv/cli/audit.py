"""wpriv audit"""

from __future__ import annotations

from pathlib import Path

from wpriv.cli import flags, output, train
from wpriv.cli.parsing import RESULTS, argument, option
from wpriv.errors import UsageError


def command(
    words: list[str] | None = argument(
        "RECIPE|STEPS",
        "A recipe of kind train, by its path or its name, as dpsgd/mnist; - is standard input. With --scores: the "
        "process that is claimed, in words.",
        default=None,
    ),
    scores: str | None = option("FILE|DIR", "Audit another program: a CSV or NPZ file with the columns score and in."),
    claim: str | None = option("CLAIM", "With --scores: what is tested: eps=4,delta=1e-5; eps=1 (pure DP); or mu=1."),
    method: str = option(
        "NAME",
        "one-run (many canaries), two-worlds (many runs, one canary each); with --scores also independent or "
        "sequential.",
        default="one-run",
    ),
    delta: str | None = option("D", "With --scores: where eps is bounded, for mu and processes (default 1e-5)."),
    confidence: str | None = option("C", "With --scores: of the test (default 0.95)."),
    canaries: int | None = option("M", "Canaries of each run (default 2000, at most one for each weight)."),
    runs: int | None = option("R", "Number of trainings (default 1; for two-worlds 200)."),
    device: str = train.DEVICE,
    out: Path | None = option("DIR", "Folder of the results (default results/<name>-audit).", group=RESULTS),
    changes: list[str] | None = train.SET,
    quick: bool = train.QUICK,
    data_root: Path | None = flags.DATA_ROOT,
    as_json: bool = flags.JSON,
) -> None:
    """Train a recipe with canaries and bound eps from below, or test a claim on scores of any program (--scores).

    Exit code 1 where the lower bound exceeds the certified upper end, or the claim is refuted: the training is not as
    private as stated. Exit code 3 where no outcome could have exceeded it: more canaries, or more runs, are needed.

    wpriv audit quick/digits --quick --canaries 500

    wpriv audit quick/digits --method two-worlds --runs 200 --out audited

    wpriv audit --scores scores.csv --claim eps=4,delta=1e-5

    wpriv audit --scores scores.csv --method independent gauss sigma=1.6 n=113 poisson 0.089
    """
    if scores is not None:
        given = {"canaries": canaries, "runs": runs, "out": out, "set": changes, "quick": quick, "data-root": data_root}
        if others := [name for name, value in given.items() if value]:
            raise UsageError(f"--{others[0]} is for an audit of a recipe: leave it out beside --scores")
        _of_scores(scores, claim, words, method, flags.numbers(delta=delta, confidence=confidence), as_json)
        return
    recipe = _recipe(words, {"claim": claim, "delta": delta, "confidence": confidence})
    train.begin_torch(device)
    from wpriv.cli import training_output
    from wpriv.training import train as training
    from wpriv.training.audit import audit

    loaded = training.recipe_of(recipe, quick=quick, changes=train.changed_keys(changes or []))
    folder = out or loaded.default_out.with_name(f"{loaded.default_out.name}-audit")
    output.doing("preparing the audit")
    with output.counting("audit") as counting:
        result = audit.run(
            loaded,
            folder,
            method=flags.folded(method) or method,
            canaries=canaries,
            runs=runs,
            device=device,
            root=data_root,
            counting=counting,
        )
    training_output.print_audit(result, as_json)
    result.require()
    result.require_power()


def _recipe(words: list[str] | None, of_scores: dict[str, str | None]) -> str:
    """The recipe to audit; flags of an audit of scores beside it are refused."""
    for name, value in of_scores.items():
        if value is not None:
            raise UsageError(f"--{name} is for an audit of scores: give --scores FILE, or leave out --{name}")
    if not words:
        raise UsageError("audit needs a recipe of kind train, or --scores FILE with --claim or a process")
    recipe = " ".join(words)
    if recipe.endswith((".csv", ".npz")):
        raise UsageError(f"{recipe} is no recipe: scores are audited by --scores {recipe} --claim eps=4,delta=1e-5")
    return recipe


def _of_scores(
    scores: str,
    claim: str | None,
    words: list[str] | None,
    method: str,
    numbers: dict[str, float | None],
    as_json: bool,
) -> None:
    """Test a claim on scores, print the verdict, and set the exit code."""
    from wpriv.training.audit.score_tests import CONFIDENCE
    from wpriv.training.audit.scores import audit_scores

    if (claim is None) == (not words):
        raise UsageError(
            "--scores needs what is claimed: one of --claim eps=4,delta=1e-5 and a process in words, such as gauss "
            "sigma=4 n=10"
        )
    answer = audit_scores(
        scores,
        claim if claim is not None else " ".join(words or ()),
        method=flags.folded(method) or method,
        delta=numbers["delta"],
        confidence=CONFIDENCE if numbers["confidence"] is None else numbers["confidence"],
    )
    output.emit_answer(as_json, answer.as_dict(), answer.sentence(), answer.facts())
    output.warn(answer.warnings)
    answer.require()
