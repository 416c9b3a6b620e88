"""A generator of records without noise, learned from records with noise on them: entropic transport takes the noise away.

The noise was put on before (``wpriv privatize``), so that all of this is post-processing. Each step meets a batch of noisy records with
as many generated ones and moves the generator down the gradient of the entropic transport cost between them, its plan held fixed. At
lambda = p sigma^p the cost of whole laws is least where the generated law is that of the records before the noise; on batches only
nearly so.

Source:
    Reshetova, Chen, Ozgur (2023), Algorithm 1 and Theorem 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wpriv import models
from wpriv.config.train_schema import Train
from wpriv.config.yaml_document import Key
from wpriv.core import registry
from wpriv.data import scaled
from wpriv.errors import UsageError
from wpriv.tasks import TaskSpec, _quality
from wpriv.tasks._denoise_options import Options

if TYPE_CHECKING:
    import torch

    from wpriv.engine.job import Job, ReleaseGate
    from wpriv.tasks._denoising_loss import Meeting

# variance: of the generated numbers, their mean over the places of a record; the last three are means over the plans of an epoch
ACROSS, DOWN = 20, 6  # images in a row of the picture, and rows of generated ones


def validate(recipe: Train) -> list[tuple[Key, str]]:
    """What does not go together in a recipe."""
    options, found = Options.model_validate(recipe.options), list[tuple[Key, str]]()
    if recipe.privacy is not None:
        found.append(
            (
                ("privacy",),
                "denoise trains on records that have their noise already, at no further cost: write privacy: none",
            )
        )
    if options.loss == "plain":
        for key in ("lam", "generated"):
            if key in recipe.options:
                found.append(
                    (("options", key), f"loss: plain is exact transport between batches of one size: leave out {key}")
                )
    return found


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """A generator and the noisy records of a data set (``privatized``, or one with ``privatize`` beside its name).

    Raises:
        UsageError: the model is no generator, or the data have no noise and the recipe does not say what to take away.
    """
    import numpy as np
    import torch

    from wpriv.engine.job import Job, optimizer_of
    from wpriv.tasks import _denoising_loss

    options = Options.model_validate(recipe.options)
    params = registry.params("models", recipe.model.name, recipe.model.parameters())
    if not hasattr(params, "latent"):
        raise UsageError(
            f"denoise trains a generator, and {recipe.model.name} is none; take dcgan-28 for images or mlp-generator"
        )
    noisy, clear = (torch.from_numpy(scaled(x)).to(device) for x in (data.x_train, data.x_test))
    generator = models.build(recipe.model, data.shape, len(data.classes)).to(device)
    if noisy.ndim == 4:
        generator = generator.to(memory_format=torch.channels_last)
    domain = "as read" if data.noise is None else data.noise.domain
    problem = problem_of(options, data.noise)
    meeting = _denoising_loss.Meeting(generator, params.latent, options, problem, domain).to(device)
    meeting.begin(noisy)
    optimizer = optimizer_of(generator.parameters(), recipe.optimizer)
    # the same latents at every look, so that two epochs differ by the weights alone
    looks = meeting.looks(options.compared, device)
    judge = _quality.fit_judge_if_possible(data)

    def custom_step(places: Any, door: ReleaseGate) -> torch.Tensor:
        own = torch.from_numpy(places).to(device)
        value = meeting.loss(noisy.index_select(0, own))
        optimizer.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return torch.tensor([len(own), len(own) * float(value.detach()), float("nan")], device=device)

    def evaluate() -> dict[str, float]:
        made = meeting.made(looks)
        apart = {"w2": _quality.w2(made, clear)} if judge is None and len(clear) > 1 else {}
        return {
            **(apart if judge is None else judge.scores(made)),
            "variance": float(made.flatten(1).var(0, correction=0).mean()),
            **meeting.seen(),
        }

    def save_artifacts(folder: Path) -> None:
        made = meeting.made(looks)
        np.savez(folder / "generated.npz", x=made.cpu().numpy())
        if (shown := _samples(meeting, made, noisy, clear)) is not None:
            np.savez(folder / "samples.npz", **shown)

    return Job(
        meeting,
        None,
        evaluate,
        custom_step=custom_step,
        optimizers={"generator": optimizer},
        save_artifacts=save_artifacts,
    )


def problem_of(options: Options, noise: Any) -> tuple[int, float]:
    """The order p of the cost, and lambda (0 where none is needed).

    Raises:
        UsageError: the data have no noise and the recipe does not give lambda.
    """
    p = options.p or (2 if noise is None else noise.p)
    if options.loss == "plain":
        return p, 0.0
    if isinstance(options.lam, float | int):
        return p, float(options.lam)
    if noise is None or noise.p != p:
        found = "none that is known" if noise is None else f"noise of order {noise.p}"
        raise UsageError(
            f"lambda comes from noise of order {p}, and the records have {found}: privatise them (data: privatize), give options: lam, "
            f"or learn from clear records with loss: plain"
        )
    if options.lam == "corollary-1":
        if p != 1:
            raise UsageError("lam: corollary-1 is about Laplace noise; take lam: theorem")
        return p, 1 / noise.scale
    return p, float(noise.lam)


def warnings(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader of a finished run must know, from its metrics."""
    share = [float(row["unconverged"]) for row in rows if row.get("unconverged") is not None]
    if not share or max(share) == 0:
        return []
    mean, worst = sum(share) / len(share), max(float(row["marginal_error"]) for row in rows)
    return [
        f"transport plans did not converge in {mean:.1%} of the steps (mean marginal error of an epoch up to {worst:.2g}): gradients are "
        f"off by a few times that, and what is taken away is not quite the noise. Raise options: most, or tol"
    ]


def _samples(meeting: Meeting, made: torch.Tensor, noisy: torch.Tensor, clear: torch.Tensor) -> dict[str, Any] | None:
    """Images: a row of test images where there are any, one of reports (of other records), and rows of generated ones.

    Points of the plane: generated ones over test records. Of other records there is no picture: None.
    """
    import numpy as np

    if made.ndim == 2 and made.shape[1] == 2:
        return {"samples": made.cpu().numpy(), **({"target": clear.cpu().numpy()} if len(clear) else {})}
    if made.ndim != 4 or made.shape[1] not in (1, 3):
        return None
    across = min(ACROSS, len(made), len(noisy))
    rows = [("test images", clear[:across])] if len(clear) >= across else []
    rows.append(("reports", meeting.shown(noisy[:across])))
    rows += [
        ("" if k else "generated", made[k * across : (k + 1) * across]) for k in range(min(DOWN, len(made) // across))
    ]
    return {
        "samples": np.concatenate([part.cpu().numpy() for _, part in rows]),
        "names": np.array([name for name, _ in rows]),
    }


TASK = TaskSpec(
    options=Options,
    results=("loss", *_quality.SCORES, "variance", "marginal_error", "iterations", "unconverged"),
    build_job=build_job,
    validate=validate,
    warnings=warnings,
    figures={"samples.npz": "samples"},
    files=("generated.npz",),
    publishable={"generated.npz": "made by the generator alone: post-processing"},
    needs_test_records=False,
)
