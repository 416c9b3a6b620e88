"""What a training promises and what it does not: one record for programs (statement.json) and the same in words (statement.md)."""

from __future__ import annotations

from typing import Any

from wpriv import tasks
from wpriv.core.adjacency import Adjacency
from wpriv.core.guarantee import Guarantee
from wpriv.core.process import Process
from wpriv.numerics.safe_rounding import text
from wpriv.run.accounting import adaptive_history, evaluate
from wpriv.run.accounting.evaluate import Refusal
from wpriv.run.accounting.plausibility import weak_guarantee
from wpriv.run.local import local_statement
from wpriv.run.results import publication
from wpriv.run.training import noise_wording
from wpriv.run.training.plan import Plan

SCHEMA = "wpriv.statement/1"
DRAWN = {
    "poisson": "every record joins every step by a coin of its own (drawn by the geometric gaps between successes), with replacement "
    "between steps; a step may be empty; sums are divided by the expected batch",
    "fixed": "every step takes a fresh uniformly random set of exactly the batch size, without replacement",
    "none": "every step uses all records",
}
COVERED = [
    "every look of the training at its records through gradients: all noisy steps in the ledger, and so the weights after each of them",
    "whatever is computed from the weights alone, and from records that are not training records",
]
NOT_COVERED = [
    "loss and clipped share in metrics.csv and on the screen: computed from training records without noise. Do not publish them",
    "the number of training records, taken as public",
    "the choice of model, learning rate, clipping norm and epochs, where they were tuned on these records; every run of a sweep",
    "preparing the data; test records, on which accuracy is measured",
    "provenance.json, whose fingerprint of the training records lets anybody test a guess of the whole set. Do not publish it",
    "checkpoint.pt, which holds the key of the noise to come and the state of the sampler (it is deleted when the run ends)",
]
NOT_ASSESSED = [
    f"the generators: noise is {publication.GENERATOR}; numpy's PCG64 (128 bits of seed), which draws the records, is not "
    "cryptographic",
    "side channels: run time, memory, error messages, several records of one person",
    "buffers of the model, numbers in model.pt that are not trained: they get no noise. {buffers}",
]
TRIED = (
    "Before the first step the model is tried in training mode on made-up records, and refused where a buffer moves: a trial on a few "
    "records, and no proof"
)
UNTRIED = (
    "They are NOT refused here: running statistics of a normalisation hold the mean of training records without noise"
)
PUBLISHED = (
    "NOT differentially private in any useful sense. The published procedure clips the mean gradient of a batch and not each record's, so "
    "that one record can move it by up to 2 C, and adds noise of {sigma:g} C. WDP and BDP figures are printed as published: they are no "
    "(eps, delta) guarantee. The only proven figure of this run is that of a Gauss mechanism of noise multiplier {multiplier:g}"
)
EXCEEDED = "the noise was found by {accountant} for eps = {eps:g}, which it does not keep: what holds is eps = {found} by {name}"
FIXED_SEED = "the seed is fixed and recorded: whoever knows it can draw the same noise and subtract it. Leave seed out for a release"


def statement(
    plan: Plan,
    process: Process | None,
    rows: list[Guarantee],
    refused: list[Refusal],
    about: dict[str, Any],
    before: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """All that is to be said of a finished run, as plain data.

    Args:
        process: what ran, from the ledger; None without privacy. rows, refused: what the accountants say of it. about: provenance.
        before: the statement of the training records, where noise was put on them before.
    """
    private, train = plan.private, plan.train
    head: dict[str, Any] = {
        "schema": SCHEMA,
        "recipe": plan.recipe.name,
        "source": plan.recipe.source,
        "task": train.task,
        "private": private is not None,
    }
    versions = {key: about.get(key) for key in ("wpriv", "python", "torch", "numpy", "device", "gpu", "git_commit")}
    data: dict[str, Any] = {
        "name": train.data.name,
        "records": plan.records,
        **({"groups": groups} if (groups := {k: n for k, n in plan.sizes.items() if k != "records"}) else {}),
        **{k: about[k] for k in ("data_source",) if k in about},
    }
    task = tasks.load(train.task)
    reports = before is not None and private is None
    seed = before["seed"] if before is not None and private is None else train.seed
    broken = private is not None and private.clip == "batch-mean"
    head["publish"] = publication.of_training(
        train.task, private=private is not None, reports=reports, seed=seed, broken=broken
    )
    head["remarks"] = list(task.remarks(train, plan.sizes))
    tail: dict[str, Any] = {"seed": train.seed, "versions": versions, "data": data}
    if private is None or process is None:
        # a published procedure with noise that promises nothing says so by itself
        void = any(remark.startswith("NOT") for remark in head["remarks"])
        nothing = {"promise": "none" if void else "none: trained without clipping and without noise"}
        return {**head, **(_after(before) if before else nothing), **tail}
    return {**head, **_promised(plan, process, rows, refused, about), **tail}


def _promised(
    plan: Plan, process: Process, rows: list[Guarantee], refused: list[Refusal], about: dict[str, Any]
) -> dict[str, Any]:
    """What is promised by a private training: what is protected, how, at what cost, and what is not covered."""
    release, private = plan.release, plan.private
    assert release is not None
    assert private is not None
    assert private.delta is not None
    buffers = UNTRIED if private.clip == "batch-mean" else TRIED
    return {
        "trust_model": publication.CENTRAL,
        "unit": release.unit,
        "adjacency": process.adjacency,
        "adjacency_means": Adjacency(process.adjacency).meaning,
        "sampling": {
            "kind": plan.sampling.kind,
            "rate": plan.sampling.rate,
            "batch": plan.batch,
            "implemented": release.drawn or DRAWN[plan.sampling.kind],
        },
        "noise": {
            "multiplier": plan.multiplier,
            "clip": release.clip,
            "clipped": release.clipped,
            **({"clipped_by": about["clipping"]} if "clipping" in about else {}),
            "sensitivity": release.sensitivity,
            **noise_wording.deviation(private, plan.multiplier * release.sensitivity),
            "of": release.of,
        },
        "steps": sum(step.n for step in process.steps),
        "process": process.describe(),
        "guarantees": [row.as_dict() for row in rows if evaluate.no_guarantee(row) is None],
        "for_comparison": [row.as_dict() for row in rows if evaluate.no_guarantee(row) is not None],
        "delta": publication.share(private.delta, plan.records),
        "refused": [{"accountant": r.accountant, "reason": r.reason} for r in refused],
        "covered": [*COVERED, *noise_wording.covered(private), *release.covered],
        "not_covered": [*NOT_COVERED, *release.not_covered]
        + (OBSERVED if any(step.observed for step in process.steps) else []),
        "not_assessed": [
            *noise_wording.not_assessed(private),
            *(line.format(buffers=buffers) for line in NOT_ASSESSED),
        ],
        "warnings": list(dict.fromkeys([*_warnings(plan, rows), *(w for row in rows for w in row.warnings)])),
    }


def _warnings(plan: Plan, rows: list[Guarantee]) -> list[str]:
    """What must be known before the figures are used, the gravest first."""
    private = plan.private
    assert private is not None
    found = [FIXED_SEED] if plan.train.seed is not None else []
    if private.clip == "batch-mean":
        found.insert(0, PUBLISHED.format(sigma=plan.multiplier * 2, multiplier=plan.multiplier))
    if private.accountant is not None and private.eps is not None:
        found += [
            EXCEEDED.format(
                accountant=private.accountant,
                eps=private.eps,
                found=text(row.epsilon.safe, up=True),
                name=row.accountant,
            )
            for row in rows
            if row.claim in ("exact", "certified") and row.notion == "approximate-dp" and row.epsilon.safe > private.eps
        ]
    return found + [
        line for row in rows if row.notion == "approximate-dp" for line in weak_guarantee(row, plan.records)
    ]


def _after(before: dict[str, Any]) -> dict[str, Any]:
    """What holds of a training without noise of its own, on records that were privatised."""
    return {
        "promise": f"{local_statement.headline(before)}: the records were privatised before the training, which is post-processing",
        "reports": before,
        "trust_model": publication.LOCAL,
        "covered": before["covered"],
        "not_covered": [*before["not_covered"], CLEAR],
        "not_assessed": before["not_assessed"],
        "warnings": list(before["warnings"]),
    }


CLEAR = "test records, on which the training was measured and which samples.npz may show: they have no noise. Publish neither"
OBSERVED = ["distances of gradients of training records, in diagnostics.pt, and every bdp and wdp figure made of them"]


def to_markdown(said: dict[str, Any]) -> str:
    """The statement in Markdown."""
    lines = [f"# Privacy statement: {said['recipe']}", "", f"Source: {said['source']}", ""]
    if not said["private"]:
        facts = local_statement.facts(said["reports"]) if "reports" in said else []
        table = ["| what | |", "|---|---|", *(f"| {what} | {value} |" for what, value in facts), ""]
        lines += [f"Promise: {said['promise']}.", "", *_remarks(said), *(table if facts else [])]
        return "\n".join([*lines, *_lists(said), *_tail(said)])
    lines += [f"**{warning}.**\n" for warning in said["warnings"][:1] if warning.startswith("NOT")] + _remarks(said)
    lines += [_figure(row) for row in said["guarantees"]] or [
        "- no accountant of the recipe gives an (eps, delta) guarantee"
    ]
    lines += [f"- {r['accountant']} has no answer: {r['reason']}" for r in said["refused"]]
    lines += [f"- {line}" for line in adaptive_history.lines(said.get("parameters"))]
    sampling, noise = said["sampling"], said["noise"]
    rate = (
        ""
        if sampling["kind"] == "none"
        else f", rate {sampling['rate']:.6g} (batch {sampling['batch']} of {said['data']['records']})"
    )
    by = f" (computed by {noise['clipped_by']})" if "clipped_by" in noise else ""
    most = f" to {noise['standard_deviation_at_most']:g}" if "standard_deviation_at_most" in noise else ""
    lines += [
        "",
        "| what | |",
        "|---|---|",
        f"| protected | {said['unit']} |",
        f"| neighbours | {said['adjacency']}: {said['adjacency_means']} |",
        f"| sampling accounted | {sampling['kind']}{rate} |",
        f"| sampling run | {sampling['implemented']} |",
        f"| steps | {said['steps']} |",
        f"| delta | {said['delta']['value']:g} = {said['delta']['meaning']} |",
        f"| clipped | {noise['clipped']}, to an l2 norm of {noise['clip']:g}{by} |",
        f"| noise | standard deviation {noise['standard_deviation']:g}{most} on {noise['of']} (multiplier {noise['multiplier']:g}) |",
        "",
    ]
    if said["for_comparison"]:
        lines += ["## For comparison only, no guarantee", "", *(_figure(row) for row in said["for_comparison"]), ""]
    return "\n".join([*lines, *_lists(said), *_tail(said)])


def _figure(row: dict[str, Any]) -> str:
    """One accountant's figure as a bullet."""
    ends = (
        f", in [{text(row['epsilon_lower'], up=False)}, {text(row['epsilon_upper'], up=True)}]"
        if row["claim"] == "certified"
        else ""
    )
    notion = "" if row["notion"] == "approximate-dp" else f" ({row['notion']}, no (eps, delta) guarantee)"
    return f"- eps = {text(row['epsilon'], up=True)} at delta = {row['delta']:g}{notion}: {row['claim']} by {row['accountant']}{ends}"


def _lists(said: dict[str, Any]) -> list[str]:
    lines = publication.lines("Trust model", said["trust_model"]) if "trust_model" in said else []
    lines += publication.table(said["publish"])
    for title, key in (
        ("Covered", "covered"),
        ("Not covered", "not_covered"),
        ("Not assessed", "not_assessed"),
        ("Warnings", "warnings"),
    ):
        if key in said:
            lines += [f"## {title}", "", *(f"- {line}" for line in said[key] or ["none"]), ""]
    return lines


def _remarks(said: dict[str, Any]) -> list[str]:
    """What a task says of its own run."""
    return [*(f"- {remark}." for remark in said["remarks"]), ""] if said["remarks"] else []


def _tail(said: dict[str, Any]) -> list[str]:
    seed = "from the operating system, not recorded" if said["seed"] is None else f"{said['seed']} (fixed)"
    versions = ", ".join(f"{key} {value}" for key, value in said["versions"].items() if value is not None)
    data = ", ".join(f"{key} {value}" for key, value in said["data"].items())
    return [f"Seed: {seed}. Versions: {versions}. Data: {data}.", ""]
