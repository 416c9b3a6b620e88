"""The privacy statement of a training: statement.json as plain data, and statement.md."""

from __future__ import annotations

from pathlib import Path

from wpriv.accounting import adaptive_history, evaluate
from wpriv.accounting.budget import weak_figures, weak_guarantee
from wpriv.accounting.evaluate import Refusal
from wpriv.config.train_parts import STABILITY
from wpriv.config.train_schema import Privacy, Train
from wpriv.core.guarantee import Guarantee
from wpriv.core.kinds import Adjacency
from wpriv.core.process import Process
from wpriv.numerics.numbers import text
from wpriv.results import model, storage
from wpriv.results.model import Json, Reports, Statement
from wpriv.training import tasks, train_data
from wpriv.training.engine.release_spec import ReleaseSpec, default_count_noise, gradient_multiplier
from wpriv.training.plan import Plan
from wpriv.training.reports import publication, render, words

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
MOST_ADDED = 2.0**-6
"""The largest relative increase of exact noise over the multiplier times the sensitivity (as in engine/release.py)."""
PERSON = "a person with up to {group} records, each {unit}"
PUBLISHED = (
    "NOT differentially private in any useful sense. The published procedure clips the mean gradient of a batch and "
    "not each record's, so that one record can move it by up to 2 C, and adds noise of {sigma:g} C. WDP and BDP "
    "numbers are printed as published: they are no (eps, delta) guarantee. The only proven number of this run is that "
    "of a Gaussian mechanism of noise multiplier {multiplier:g}"
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
    about: Json,
    reports: Json | None = None,
) -> Json:
    """Return the statement of a finished run as plain data.

    Args:
        process: the releases in the ledger; None without privacy. rows, refused: the answers of the accountants.
        about: provenance. reports: the statement of the training records, if they were privatised before.
    """
    private, train, task = plan.private, plan.train, tasks.load(plan.train.task)
    looks = [] if plan.looks is None else plan.looks.in_words(about.get("earlier_looks", ()))
    remarks = [*plan.end, *looks, *task.remarks(train, plan.sizes), *about.get("remarks", ())]
    groups = {name: size for name, size in plan.sizes.items() if name != "records"}
    observed = process is not None and any(step.observed for step in process.steps)
    if private is not None and process is not None:
        guarantee = _guaranteed(plan, process, rows, refused, about, observed=observed)
    elif reports is not None and private is None:
        guarantee = _post_processed(reports, train)
    else:
        # a published procedure with noise but without a guarantee says so in its remarks
        noisy = any(remark.startswith("NOT") for remark in remarks)
        guarantee = {"promise": "none" if noisy else "none: trained without clipping and without noise"}
    return {
        "schema": words.SCHEMA,
        "recipe": plan.recipe.name,
        "source": plan.recipe.source,
        "task": train.task,
        "private": private is not None,
        "publish": publication.of_training(
            train,
            reports if private is None else None,
            observed=observed,
            looks=plan.looks is not None and plan.looks.step is not None,
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
            **train_data.entry(about),
        },
    }


def to_markdown(statement: Json) -> str:
    """Render the statement of a training as Markdown."""
    stated = model.checked(Statement, statement, storage.STATEMENT, model.TRAIN_AGAIN)
    releases, reports = stated.releases, stated.reports
    facts = [] if reports is None else words.report_facts(reports)
    return render.filled(
        "training.md.j2",
        statement=stated,
        source=stated,
        releases=releases,
        title=stated.recipe,
        facts=facts if releases is None else words.training_facts(releases, stated.data.records),
        comparison=[] if releases is None else releases.for_comparison,
        premises=None if releases is None else releases.premises,
        parameters=[] if releases is None else adaptive_history.lines(releases.parameters),
        data=train_data.data_words(stated.data.model_dump(exclude_unset=True)),
    )


def _guaranteed(
    plan: Plan, process: Process, rows: list[Guarantee], refused: list[Refusal], about: Json, *, observed: bool
) -> Json:
    """The entries of a private training: unit, noise, guarantees, and limits of what they cover."""
    release, private = plan.release, plan.private
    assert release is not None
    assert private is not None
    lists = render.sections(
        "training_lists.txt.j2",
        train=plan.train,
        private=private,
        release=release,
        group=process.group,
        first_file=_first_file(plan.train),
        observed=observed,
        fork=bool(plan.before),
        generator=publication.GENERATOR,
        method=about.get("clipping"),
        steps=list(about.get("checked", ())),
    )
    return {
        "trust_model": lists["trust_model"],
        "unit": release.unit if process.group == 1 else PERSON.format(group=process.group, unit=release.unit),
        **({} if process.group == 1 else {"group": process.group}),
        "adjacency": process.adjacency,
        "adjacency_means": Adjacency(process.adjacency).meaning,
        "sampling": {
            "kind": "balls-in-bins" if release.strategy else plan.sampling.kind,
            "rate": plan.sampling.rate,
            "batch": plan.batch,
            **({"pass_steps": plan.sampling.pass_steps} if plan.sampling.kind == "allocation" else {}),
            "implemented": release.drawn or DRAWN[plan.sampling.kind],
        },
        "noise": _noise(plan, release, private, about),
        "steps": sum(step.n for step in process.steps),
        **{"process": process.describe(), "premises": [premise.sentence for premise in process.premises()]},
        "guarantees": [row.as_dict() for row in rows if evaluate.no_guarantee(row) is None],
        "for_comparison": [row.as_dict() for row in rows if evaluate.no_guarantee(row) is not None],
        "delta": words.share(plan.delta, plan.records).model_dump(),
        "refused": [{"accountant": refusal.accountant, "reason": refusal.reason} for refusal in refused],
        **{key: lists[key] for key in ("covered", "not_covered", "not_assessed")},
        "warnings": list(dict.fromkeys([*_warnings(plan, rows), *(line for row in rows for line in row.warnings)])),
    }


def warnings_of_plan(plan: Plan) -> list[str]:
    """Return the warnings that are known before a training with privacy starts, the most serious first."""
    if plan.private is None:
        return []
    broken = plan.private.clip == "batch-mean"
    warnings = [PUBLISHED.format(sigma=plan.multiplier * 2, multiplier=plan.multiplier)] if broken else []
    warnings += [words.FIXED_SEED] if plan.train.seed is not None else []
    return warnings + weak_figures(plan.eps() or 0.0, plan.delta, plan.records)


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


def _post_processed(reports: Json, train: Train) -> Json:
    """The guarantee of a training without noise of its own on records that were privatised."""
    lists = render.sections("post_processing_lists.txt.j2", train=train, first_file=_first_file(train))
    headline = words.headline(model.checked(Reports, reports, "the statement of the reports", model.PRIVATISE_AGAIN))
    return {
        "promise": f"{headline}: the records were privatised before the training, which is post-processing",
        "reports": reports,
        "trust_model": lists["trust_model"],
        "covered": reports["covered"],
        "not_covered": [*reports["not_covered"], *lists["not_covered"]],
        "not_assessed": reports["not_assessed"],
        "warnings": list(reports["warnings"]),
    }


def _first_file(train: Train) -> str:
    """The name of the file of the weights that a training begins from; empty where there is none."""
    return "" if train.init is None else " ".join(Path(train.init.file).name.split("\n"))


def _noise(plan: Plan, release: ReleaseSpec, private: Privacy, about: Json) -> Json:
    """The noise of a step and the bound on what is summed; the largest deviation too if it depends on the model."""
    rule = _clipping(plan, private)
    deviation = rule.get("gradient_multiplier", plan.multiplier) * release.sensitivity
    noise = {
        "multiplier": plan.multiplier,
        "clip": release.clip,
        "clipped": release.clipped,
        **({"clipped_by": about["clipping"]} if "clipping" in about else {}),
        "sensitivity": release.sensitivity,
        **rule,
        "form": "exact" if private.exact else "rounded",
        "standard_deviation": deviation,
        **({"standard_deviation_at_most": deviation * (1 + MOST_ADDED)} if private.exact else {}),
    }
    if plan.step is not None and plan.recursion is not None:
        noise |= {"strategy": plan.step.describe()["strategy"], "earlier": plan.recursion.words}
    return {**noise, "of": release.of}


def _clipping(plan: Plan, private: Privacy) -> Json:
    """The entries of ``noise`` on a rule of clipping other than a fixed norm; {} for a norm."""
    if private.clip == "automatic":
        return {"rule": "automatic", "stability": private.stability or STABILITY}
    if private.by_group:
        return {"rule": "groups", "groups": private.clip if isinstance(private.clip, dict) else {}}
    if private.adapt is None:
        return {}
    count = private.adapt.count_noise or default_count_noise(plan.batch)
    return {
        "rule": "adaptive",
        "quantile": private.adapt.quantile,
        "rate": private.adapt.rate,
        "count_standard_deviation": count,
        "gradient_multiplier": gradient_multiplier(plan.multiplier, count, plan.adjacency),
    }
