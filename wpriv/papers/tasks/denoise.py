"""A generator of clear records that learns from noisy ones: entropic optimal transport removes the noise.

The noise was added before (``wpriv privatize``), so that the training is post-processing. Each step computes the
entropic transport cost between a batch of noisy records and as many generated ones, and updates the generator by its
gradient with the plan held fixed. For whole distributions and lambda = p sigma^p, the cost is smallest where the
generated distribution is that of the records before the noise; for batches this holds approximately.

Source:
    Reshetova, Chen, Ozgur (2023), Algorithm 1 and Theorem 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv.config.train_schema import Train
from wpriv.errors import UsageError
from wpriv.papers.tasks import _generation
from wpriv.papers.tasks._denoise_options import Options
from wpriv.training import models
from wpriv.training.data import scaled
from wpriv.training.tasks import Fault, TaskSpec

if TYPE_CHECKING:
    import torch

    from wpriv.papers.tasks._denoising_loss import DenoisingGenerator
    from wpriv.training.engine.job import Job, ReleaseGate

COLUMNS_SHOWN, ROWS_SHOWN = 20, 6  # images in a row of the picture, and rows of generated ones


def validate(recipe: Train) -> Iterator[Fault]:
    """Faults: a privacy section, or options that exact transport does not have."""
    options = Options.model_validate(recipe.options)
    if recipe.privacy is not None:
        yield ("privacy",), "denoise trains on records that have noise already, at no further cost: write privacy: none"
    if options.loss == "plain":
        for key in ("lam", "generated"):
            if key in recipe.options:
                yield ("options", key), f"loss: plain is exact transport between batches of one size: leave out {key}"


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """Build the generator, its loss and its step on noisy records (``privatized``, or data with ``privatize``)."""
    import numpy as np
    import torch

    from wpriv.papers.tasks import _denoising_loss, _quality
    from wpriv.training.engine.job import Job
    from wpriv.training.engine.update_rules import UpdateRule

    options = Options.model_validate(recipe.options)
    latent = _generation.latent_of(recipe.model, "denoise")
    noisy, clear = (torch.from_numpy(scaled(x)).to(device) for x in (data.x_train, data.x_test))
    generator = models.build(recipe.model, data.shape, len(data.classes)).to(device)
    if noisy.ndim == 4:
        generator = generator.to(memory_format=torch.channels_last)
    domain = "as read" if data.noise is None else data.noise.domain
    problem = transport_problem(options, data.noise)
    model = _denoising_loss.DenoisingGenerator(generator, latent, options, problem, domain).to(device)
    model.start_at_mean(noisy)
    optimizer = UpdateRule(generator.parameters(), recipe.optimizer)
    # the same latents at every evaluation, so that epochs differ by the weights alone
    latents = model.evaluation_latents(options.compared, device)
    judge = _quality.fit_judge_if_possible(data)

    def custom_step(indices: Any, gate: ReleaseGate) -> torch.Tensor:
        rows = torch.from_numpy(indices).to(device)
        loss = model.loss(noisy.index_select(0, rows))
        _generation.descend(loss, optimizer)
        return torch.tensor([len(rows), len(rows) * float(loss.detach()), float("nan")], device=device)

    def evaluate() -> dict[str, float]:
        samples = model.generate(latents)
        results: dict[str, float] = {}
        if judge is not None:
            results = judge.scores(samples)
        elif len(clear) > 1:
            results = {"w2": _quality.w2(samples, clear)}
        results["variance"] = float(samples.flatten(1).var(0, correction=0).mean())
        return results | model.pop_plan_diagnostics()

    def save_artifacts(folder: Path) -> None:
        samples = model.generate(latents)
        np.savez(folder / "generated.npz", x=samples.cpu().numpy())
        if (arrays := _figure_arrays(model, samples, noisy, clear)) is not None:
            np.savez(folder / "samples.npz", **arrays)

    optimizers = {"generator": optimizer}
    return Job(model, None, evaluate, custom_step=custom_step, optimizers=optimizers, save_artifacts=save_artifacts)


def transport_problem(options: Options, noise: Any) -> tuple[int, float]:
    """Return the order p of the cost, and lambda (0 where the loss has none)."""
    p = options.p or (2 if noise is None else noise.p)
    if options.loss == "plain":
        return p, 0.0
    if isinstance(options.lam, float | int):
        return p, float(options.lam)
    if noise is None or noise.p != p:
        actual = "no known noise" if noise is None else f"noise of order {noise.p}"
        raise UsageError(
            f"lambda comes from noise of order {p}, and the records have {actual}: privatise them (data: privatize), "
            "give options: lam, or learn from clear records with loss: plain"
        )
    if options.lam == "corollary-1":
        if p != 1:
            raise UsageError("lam: corollary-1 is about Laplace noise; take lam: theorem")
        return p, 1 / noise.scale
    return p, float(noise.lam)


def warnings(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a warning if transport plans did not converge in a finished run."""
    shares = [float(row["unconverged"]) for row in rows if row.get("unconverged") is not None]
    if not shares or max(shares) == 0:
        return []
    mean, worst = sum(shares) / len(shares), max(float(row["marginal_error"]) for row in rows)
    return [
        f"transport plans did not converge in {mean:.1%} of the steps (mean marginal error of an epoch up to "
        f"{worst:.2g}): gradients are off by a few times that, and the noise is not removed exactly. "
        "Raise options: most, or tol"
    ]


def _figure_arrays(
    model: DenoisingGenerator, samples: torch.Tensor, noisy: torch.Tensor, clear: torch.Tensor
) -> dict[str, Any] | None:
    """Arrays of samples.npz. For images a row of test images if any, a row of reports and rows of generated images.

    The reports belong to other records than the test images. For points of the plane generated points and test records;
    None for other records.
    """
    generated, tests = samples.cpu().numpy(), clear.cpu().numpy()
    if samples.ndim == 2 and samples.shape[1] == 2:
        return {"samples": generated, **({"target": tests} if len(clear) else {})}
    if samples.ndim != 4 or samples.shape[1] not in (1, 3):
        return None
    columns = min(COLUMNS_SHOWN, len(samples), len(noisy))
    rows = {"test images": tests, "reports": model.to_clear_units(noisy[:columns]).cpu().numpy()}
    return _generation.picture(rows, generated, columns, ROWS_SHOWN)


TASK = TaskSpec(
    options=Options,
    # variance: of the generated numbers, averaged over the numbers of a record; the last three are means over the
    # transport plans of an epoch
    results=("loss", *_generation.SCORES, "variance", "marginal_error", "iterations", "unconverged"),
    build_job=build_job,
    validate=validate,
    warnings=warnings,
    figures={"samples.npz": "samples"},
    files=("generated.npz",),
    publishable={"generated.npz": "made by the generator alone: post-processing"},
    needs_test_records=False,  # the owner of privatised records may have no others
)
