"""A Wasserstein GAN with gradient penalty, on records as they are: what generators from privatised records are compared with.

It learns the law of what it is given, noise and all. Each step moves the critic once on a fresh batch, and every fifth the generator.

Source:
    Gulrajani, Ahmed, Arjovsky, Dumoulin, Courville (2017), Algorithm 1; as a baseline, Reshetova, Chen, Ozgur (2023), Figure 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from wpriv.config.field_types import Count, Field, PluginRef, Positive, StrictModel
from wpriv.config.train_schema import Train
from wpriv.config.yaml_document import Key
from wpriv.core import registry
from wpriv.data import scaled
from wpriv.errors import UsageError
from wpriv.tasks import TaskSpec, _quality

if TYPE_CHECKING:
    import torch

    from wpriv.engine.job import Job, ReleaseGate

# loss: the critic's, an estimate of W_1 with its sign turned. logistic: of a classifier fitted to conditional samples
SHOWN, ROWS = 20, 3


class Options(StrictModel):
    """What a recipe may say under ``options``."""

    critic: PluginRef = Field(default=PluginRef(name="critic-28"), description="model of the critic; mlp for points")
    penalty: Positive = Field(10.0, description="weight of the gradient penalty")
    critic_steps: Annotated[int, Field(ge=1)] = Field(5, description="steps of the critic for each of the generator")
    conditional: bool = Field(
        False, description="generator and critic are told the label; labels must be public or the data clear"
    )
    wavelet: Literal["oracle"] | None = Field(
        None, description="denoise privatised images first, with wavelets chosen by looking at clear held-out images"
    )
    compared: Count = Field(2000, description="generated records that are measured, at most")


def validate(recipe: Train) -> list[tuple[Key, str]]:
    """What does not go together in a recipe."""
    options, found = Options.model_validate(recipe.options), list[tuple[Key, str]]()
    noisy = recipe.data.privatize is not None or recipe.data.name == "privatized"
    if recipe.privacy is not None:
        found.append(
            (
                ("privacy",),
                "wgan adds no noise of its own: write privacy: none, and privatise the records first (data: privatize)",
            )
        )
    if options.wavelet and not noisy:
        found.append(
            (
                ("options", "wavelet"),
                "wavelets take noise away and these data have none: give data: privatize, or leave it out",
            )
        )
    if options.conditional and recipe.data.privatize is not None and not recipe.data.privatize.public_labels:
        found.append(
            (
                ("options", "conditional"),
                "the reports have no labels: give data: privatize: public_labels: true, or leave it out",
            )
        )
    if options.critic.name not in registry.names("models"):
        found.append((("options", "critic"), f"no model called {options.critic.name[:60]!r}"))
    return found


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """A generator, a critic and the records of a data set.

    Raises:
        UsageError: the model is no generator or does not fit, or labels are asked for and there are none.
        MissingResource: wavelets are asked for and PyWavelets is not installed.
    """
    import numpy as np
    import torch

    from wpriv.engine.job import Job, optimizer_of
    from wpriv.tasks import _learners, _wgan_critic

    options = Options.model_validate(recipe.options)
    classes = len(data.classes) if options.conditional else 0
    told = len(np.unique(data.y_train))
    if options.conditional and told < 2:
        raise UsageError(f"options: conditional needs labels of two classes or more; found {told} in {data.name}")
    given = _pixels(data)
    seen, measured = _denoised(given, data) if options.wavelet and data.noise is not None else (given, {})
    records, labels = torch.from_numpy(seen).to(device), torch.tensor(data.y_train, device=device)
    pair = _wgan_critic.pair(recipe.model, options.critic, data.shape, classes, options.penalty).to(device)
    optimizers = {name: optimizer_of(part.parameters(), recipe.optimizer) for name, part in pair.parts()}
    # the same latents and labels at every look, so that two epochs differ by the weights alone
    looks, wanted = pair.latents(options.compared), torch.arange(options.compared) % max(classes, 1)
    judge = _quality.fit_judge_if_possible(data)

    def custom_step(places: Any, door: ReleaseGate) -> torch.Tensor:
        own = torch.from_numpy(places).to(device)
        real, label = records.index_select(0, own), labels.index_select(0, own)
        loss = pair.critic_loss(real, label)
        _moved(loss, optimizers["critic"])
        pair.steps += 1
        if int(pair.steps) % options.critic_steps == 0:
            _moved(pair.generator_loss(label), optimizers["generator"])
        return torch.tensor([len(own), len(own) * float(loss.detach()), float("nan")], device=device)

    def evaluate() -> dict[str, float]:
        made = pair.made(looks, wanted)
        found = dict(measured)
        if judge is not None:
            found |= judge.scores(made)
        elif len(data.x_test):
            found["w2"] = _quality.w2(_quality.checked(made, data.shape), torch.from_numpy(scaled(data.x_test)))
        if classes and len(data.x_test):
            found["logistic"] = _learners.accuracy(_learners.logistic(made, wanted, classes), *_quality.held_out(data))
        return found

    def save_artifacts(folder: Path) -> None:
        if data.shape == (2,) or (len(data.shape) == 3 and data.shape[0] in (1, 3)):
            others = {"privatised": given} if data.noise is not None else {}
            others |= {"wavelets": seen} if options.wavelet else {}
            np.savez(folder / "samples.npz", **_pictured(pair.made(looks, wanted).numpy(), scaled(data.x_test), others))

    return Job(pair, None, evaluate, custom_step=custom_step, optimizers=optimizers, save_artifacts=save_artifacts)


def warnings(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What a reader of a finished run must know, from its metrics."""
    if not any(row.get("wavelet_distance") is not None for row in rows):
        return []
    return [
        "wavelets were chosen by looking at clear held-out images, which nobody has who has the reports alone: this baseline is flattered, "
        "as in the paper, and what is promised of the reports is not promised of that choice"
    ]


def _moved(loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()


def _denoised(given: Any, data: Any) -> tuple[Any, dict[str, float]]:
    """Records without what wavelets take for noise, and how well those did on held-out images, by the names of metrics."""
    from wpriv.tasks import _wavelets

    way = _wavelets.chosen(scaled(data.x_test), data.noise)
    return way(given), {"noisy_distance": way.before, "wavelet_distance": way.after}


def _pixels(data: Any) -> Any:
    """The training records as float32, back in the units of clear ones where they are cosine coefficients."""
    import torch

    from wpriv.transport import cosine

    x = scaled(data.x_train)
    return cosine.inverse(torch.from_numpy(x)).numpy() if data.noise is not None and data.noise.domain == "dct" else x


def _pictured(made: Any, clear: Any, others: dict[str, Any]) -> dict[str, Any]:
    """Images: rows of clear, noisy and denoised ones where there are as many, then of generated ones. Points: generated over clear ones."""
    import numpy as np

    if made.ndim != 4:
        return {"samples": made, **({"target": clear} if len(clear) else {})}
    shown = min(SHOWN, len(made))
    rows = {name: part[:shown] for name, part in {"original": clear, **others}.items() if len(part) >= shown}
    new = [made[k * shown : (k + 1) * shown] for k in range(min(ROWS, len(made) // shown))]
    return {
        "samples": np.concatenate([*rows.values(), *new]),
        "names": np.array([*rows, "generated", *[""] * (len(new) - 1)]),
    }


TASK = TaskSpec(
    options=Options,
    results=("loss", *_quality.SCORES, "logistic", "noisy_distance", "wavelet_distance"),
    build_job=build_job,
    validate=validate,
    warnings=warnings,
    figures={"samples.npz": "samples"},
    needs_test_records=False,
)
