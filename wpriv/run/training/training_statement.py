"""The privacy statement of a training: statement.json as plain data, and statement.md."""

from __future__ import annotations

from typing import Any

from wpriv import tasks
from wpriv.core.adjacency import Adjacency
from wpriv.core.guarantee import Guarantee
from wpriv.core.process import Process
from wpriv.engine.ledger import CutPass
from wpriv.numerics.safe_rounding import text
from wpriv.run.accounting import adaptive_history, evaluate
from wpriv.run.accounting.evaluate import Refusal
from wpriv.run.accounting.plausibility import weak_figures, weak_guarantee
from wpriv.run.local import local_statement
from wpriv.run.results import clipping_words, privacy_statement, publication
from wpriv.run.training import class_order, network_wording, noise_wording, technique_wording, tuning_wording
from wpriv.run.training.plan import Plan

DRAWN = {
    "poisson": (
        "every record joins every step by an independent coin flip (drawn by the geometric gaps between successes), "
        "with replacement between steps; a step may be empty; sums are divided by the expected batch"
    ),
    "allocation": (
        "in every pass of 1 / rate steps each record takes part in exactly one step, drawn uniformly and independently "
        "of all other records and passes; a step may be empty; sums are divided by the expected batch"
    ),
    "fixed": "every step takes a new uniformly random set of exactly the batch size, without replacement",
    "none": "every step uses all records",
}
COVERED = [
    "every use of the records through gradients: all noisy steps in the ledger, and so the weights after each of them",
    "everything computed from the weights only, and from records that are not training records",
    "records whose gradient is not finite, or overflows: they add zero to a step, and no error or message shows them",
]
NOT_COVERED = [
    "loss and clipped share in metrics.csv and on the screen: computed from training records without noise. Do not "
    "publish them",
    "the number of training records, and classes and groups that were read from them, treated as public",
    "the choice of model, learning rate, clipping norm and epochs, if tuned on these records; every run of a sweep",
    "the preparation of the data; test records, on which accuracy is measured",
    "provenance.json, whose fingerprint of the records lets anyone test a guess of them all. Do not publish it",
    "an error that the network, the loss or a check raises because of a record: it stops the training",
    "checkpoint.pt, which holds the key of future noise and the state of the sampler (it is deleted when the run ends)",
]
SEVERAL = "several records of one person together: each of them is protected by itself"
MORE = "more than {group} records of one person"
PERSON = "a person with up to {group} records, each {unit}"
TEST_RECORDS = "test records, on which the training was measured and which samples.npz may show: they have no noise"
OBSERVED = "distances of gradients of training records, in diagnostics.pt, and every bdp and wdp figure made from them"
NOT_ASSESSED = [
    f"the generators: noise is {publication.GENERATOR}; numpy's PCG64 (128 bits of seed), which draws the records, and "
    "torch's generators (32 bits of seed on a CPU), which draw first weights and dropout, are not cryptographic",
    "side channels: run time, memory, error messages",
]
PUBLISHED = (
    "NOT differentially private in any useful sense. The published procedure clips the mean gradient of a batch and "
    "not each record's, so that one record can move it by up to 2 C, and adds noise of {sigma:g} C. WDP and BDP "
    "figures are printed as published: they are no (eps, delta) guarantee. The only proven figure of this run is that "
    "of a Gauss mechanism of noise multiplier {multiplier:g}"
)
EXCEEDED = (
    "the noise was calibrated by {accountant} for eps = {eps:g}, and does not keep it: the guarantee is eps = {found} "
    "by {name}"
)


def statement(
    plan: Plan,
    process: Process | None,
    rows: list[Guarantee],
    refused: list[Refusal],
    about: dict[str, Any],
    reports: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the statement of a finished run as plain data.

    Args:
        process: the releases in the ledger; None without privacy. rows, refused: the answers of the accountants.
        about: provenance. reports: the statement of the training records, if they were privatised before.
    """
    private, train, task = plan.private, plan.train, tasks.load(plan.train.task)
    remarks = list(task.remarks(train, plan.sizes))
    groups = {name: size for name, size in plan.sizes.items() if name != "records"}
    on_reports = reports is not None and private is None
    if private is not None and process is not None:
        guarantee = _guaranteed(plan, process, rows, refused, about)
    elif reports is not None and private is None:
        guarantee = _post_processed(reports, technique_wording.not_covered(train))
    else:
        # a published procedure with noise but without a guarantee says so in its remarks
        noisy = any(remark.startswith("NOT") for remark in remarks)
        guarantee = {"promise": "none" if noisy else "none: trained without clipping and without noise"}
    return {
        "schema": privacy_statement.SCHEMA,
        "recipe": plan.recipe.name,
        "source": plan.recipe.source,
        "task": train.task,
        "private": private is not None,
        "publish": publication.of_training(
            train.task,
            private=private is not None,
            reports=on_reports,
            seed=reports["seed"] if reports is not None and on_reports else train.seed,
            broken=private is not None and private.clip == "batch-mean",
            averaged=train.average is not None,
            on_test_records=task.trains_on_test_records(train),
            observed=OBSERVED in guarantee.get("not_covered", ()),
        ),
        "remarks": remarks,
        **guarantee,
        "seed": train.seed,
        "versions": {
            key: about.get(key)
            for key in ("wpriv", "python", "torch", "numpy", "device", "gpu", "kernels", "git_commit")
        },
        "data": {
            "name": train.data.name,
            "records": plan.records,
            **({"groups": groups} if groups else {}),
            **({"data_source": about["data_source"]} if "data_source" in about else {}),
            **class_order.entry(about),
        },
    }


def to_markdown(statement: dict[str, Any]) -> str:
    """Render the statement of a training as Markdown."""
    remarks = [f"- {remark}." for remark in statement["remarks"]]
    if statement["private"]:
        first = statement["warnings"][:1]
        summary = [f"**{warning}.**\n" for warning in first if warning.startswith("NOT")]
        summary += [*remarks, ""] if remarks else []
        summary += [*_figures(statement), ""]
        facts, comparison = _facts(statement), [_figure(row) for row in statement["for_comparison"]]
    else:
        summary = [f"Promise: {statement['promise']}.", "", *([*remarks, ""] if remarks else [])]
        facts = local_statement.facts(statement["reports"]) if "reports" in statement else []
        comparison = []
    return privacy_statement.to_markdown(
        statement,
        title=statement["recipe"],
        summary=[f"Source: {statement['source']}", "", *summary],
        facts=facts,
        comparison=comparison,
        data=class_order.data_words(statement["data"]),
    )


def _guaranteed(
    plan: Plan, process: Process, rows: list[Guarantee], refused: list[Refusal], about: dict[str, Any]
) -> dict[str, Any]:
    """The entries of a private training: unit, noise, guarantees, and limits of what they cover."""
    release, private = plan.release, plan.private
    assert release is not None
    assert private is not None
    assert private.delta is not None
    observed = [OBSERVED] if any(step.observed for step in process.steps) else []
    rule = technique_wording.clipping(plan)
    return {
        "trust_model": privacy_statement.CENTRAL,
        "unit": release.unit if process.group == 1 else PERSON.format(group=process.group, unit=release.unit),
        **({} if process.group == 1 else {"group": process.group}),
        "adjacency": process.adjacency,
        "adjacency_means": Adjacency(process.adjacency).meaning,
        "sampling": {
            "kind": plan.sampling.kind,
            "rate": plan.sampling.rate,
            "batch": plan.batch,
            **({"pass_steps": plan.sampling.pass_steps} if plan.sampling.kind == "allocation" else {}),
            "implemented": release.drawn or DRAWN[plan.sampling.kind],
        },
        "noise": {
            "multiplier": plan.multiplier,
            "clip": release.clip,
            "clipped": release.clipped,
            **({"clipped_by": about["clipping"]} if "clipping" in about else {}),
            "sensitivity": release.sensitivity,
            **rule,
            **noise_wording.deviation(private, rule.get("gradient_multiplier", plan.multiplier) * release.sensitivity),
            "of": release.of,
        },
        "steps": sum(step.n for step in process.steps),
        **{"process": process.describe(), "premises": [premise.sentence for premise in process.premises()]},
        "guarantees": [row.as_dict() for row in rows if evaluate.no_guarantee(row) is None],
        "for_comparison": [row.as_dict() for row in rows if evaluate.no_guarantee(row) is not None],
        "delta": privacy_statement.share(private.delta, plan.records),
        "refused": [{"accountant": refusal.accountant, "reason": refusal.reason} for refusal in refused],
        "covered": [
            *COVERED,
            *technique_wording.covered(plan.train),
            *noise_wording.covered(private),
            *release.covered,
        ],
        "not_covered": [
            *NOT_COVERED,
            SEVERAL if process.group == 1 else MORE.format(group=process.group),
            *technique_wording.not_covered(plan.train),
            *release.not_covered,
            *observed,
        ],
        "not_assessed": [
            *noise_wording.not_assessed(private, fork=bool(plan.before)),
            *NOT_ASSESSED,
            *network_wording.not_assessed(private, about.get("clipping"), about.get("checked", ())),
        ],
        "warnings": list(dict.fromkeys([*_warnings(plan, rows), *(line for row in rows for line in row.warnings)])),
    }


def warnings_of_plan(plan: Plan) -> list[str]:
    """Return the warnings that are known before a training with privacy starts, the most serious first."""
    warnings = []
    if plan.private is not None and plan.private.clip == "batch-mean":
        warnings.append(PUBLISHED.format(sigma=plan.multiplier * 2, multiplier=plan.multiplier))
    if plan.private is not None and plan.train.seed is not None:
        warnings.append(privacy_statement.FIXED_SEED)
    if plan.private is not None:
        warnings += weak_figures(plan.eps() or 0.0, plan.private.delta or 0.0, plan.records)
    return warnings


def _warnings(plan: Plan, rows: list[Guarantee]) -> list[str]:
    """Warnings on the guarantees, the most serious first."""
    private = plan.private
    assert private is not None
    warnings = warnings_of_plan(plan)
    dp_rows = [row for row in rows if row.notion == "approximate-dp"]
    if private.accountant is not None and private.eps is not None:
        for row in dp_rows:
            if row.claim in ("exact", "certified") and row.epsilon.safe > private.eps:
                eps = text(row.epsilon.safe, up=True)
                warnings.append(
                    EXCEEDED.format(accountant=private.accountant, eps=private.eps, found=eps, name=row.accountant)
                )
    return warnings + [line for row in dp_rows for line in weak_guarantee(row, plan.records)]


def _post_processed(reports: dict[str, Any], first_weights: list[str]) -> dict[str, Any]:
    """The guarantee of a training without noise of its own on records that were privatised."""
    headline = local_statement.headline(reports)
    return {
        "promise": f"{headline}: the records were privatised before the training, which is post-processing",
        "reports": reports,
        "trust_model": privacy_statement.LOCAL,
        "covered": reports["covered"],
        "not_covered": [*reports["not_covered"], *first_weights, TEST_RECORDS],
        "not_assessed": reports["not_assessed"],
        "warnings": list(reports["warnings"]),
    }


def _figures(statement: dict[str, Any]) -> list[str]:
    """The guarantees, the accountants without an answer and the figures of earlier runs, as bullets."""
    lines = [_figure(row) for row in statement["guarantees"]]
    lines = lines or ["- no accountant of the recipe gives an (eps, delta) guarantee"]
    lines += [f"- {refusal['accountant']} has no answer: {refusal['reason']}" for refusal in statement["refused"]]
    if "tuning" in statement:
        lines += [f"- {line}" for line in tuning_wording.figures(statement["tuning"])]
    return lines + [f"- {line}" for line in adaptive_history.lines(statement.get("parameters"))]


def _figure(row: dict[str, Any]) -> str:
    """One accountant's figure as a bullet."""
    bracket = privacy_statement.bracket(row)
    ends = f", {bracket}" if bracket else ""
    notion = "" if row["notion"] == "approximate-dp" else f" ({row['notion']}, no (eps, delta) guarantee)"
    eps = f"eps = {text(row['epsilon'], up=True)} at delta = {text(row['delta'], up=True)}"
    return f"- {eps}{notion}: {row['claim']} by {row['accountant']}{ends}"


def _facts(statement: dict[str, Any]) -> list[tuple[str, str]]:
    """The rows of the table of a private training."""
    sampling, noise, delta = statement["sampling"], statement["noise"], statement["delta"]
    size = sampling["batch"] if isinstance(sampling["batch"], int) else f"{sampling['batch']:g}"
    batch = f"(batch {size} of {statement['data']['records']})"
    passes = f", passes of {sampling['pass_steps']} steps" if "pass_steps" in sampling else ""
    cut = [f"; {CutPass(**cut)}" for cut in statement.get("cut_passes", ())]
    rate = "" if sampling["kind"] == "none" else f", rate {sampling['rate']:.6g} {batch}"
    method = f" (computed by {noise['clipped_by']})" if "clipped_by" in noise else ""
    largest = f" to {noise['standard_deviation_at_most']:g}" if "standard_deviation_at_most" in noise else ""
    deviation = clipping_words.deviation(noise, largest)
    return [
        ("protected", statement["unit"]),
        ("neighbours", f"{statement['adjacency']}: {statement['adjacency_means']}"),
        ("sampling accounted", f"{sampling['kind']}{rate}{passes}"),
        ("sampling run", sampling["implemented"]),
        ("steps", f"{statement['steps']}{''.join(cut)}"),
        ("delta", f"{text(delta['value'], up=True)} = {delta['meaning']}"),
        ("clipped", f"{clipping_words.clipped(noise)}{method}"),
        ("noise", f"{deviation} on {noise['of']} (multiplier {noise['multiplier']:g})"),
    ]
