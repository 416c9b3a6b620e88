"""A Wasserstein GAN with gradient penalty on records as they are: the baseline for generators from privatised records.

It learns the distribution of its input, including any noise. Each step updates the critic on a fresh batch, and every
fifth step (by default) also the generator.

Source:
    Gulrajani, Ahmed, Arjovsky, Dumoulin, Courville (2017), Algorithm 1; as a baseline, Reshetova, Chen, Ozgur (2023),
    Figure 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from wpriv.config.field_types import Count, Field, PluginRef, Positive, StrictModel
from wpriv.config.train_schema import Train
from wpriv.core import registry
from wpriv.errors import UsageError
from wpriv.papers.tasks import _generation
from wpriv.training.data import scaled
from wpriv.training.tasks import Fault, TaskSpec

if TYPE_CHECKING:
    import torch

    from wpriv.training.engine.job import Job, ReleaseGate

COLUMNS_SHOWN, ROWS_SHOWN = 20, 3  # images in a row of the picture, and rows of generated ones


class Options(StrictModel):
    """Keys under ``options`` of a recipe."""

    critic: PluginRef = Field(default=PluginRef(name="critic-28"), description="model of the critic; mlp for points")
    penalty: Positive = Field(10.0, description="weight of the gradient penalty")
    critic_steps: Annotated[int, Field(ge=1)] = Field(5, description="steps of the critic for each of the generator")
    conditional: bool = Field(
        False, description="generator and critic receive the label; labels must be public or the data clear"
    )
    wavelet: Literal["oracle"] | None = Field(
        None, description="denoise privatised images first, with wavelets chosen by looking at clear held-out images"
    )
    compared: Count = Field(2000, description="generated records that are measured, at most")


def validate(recipe: Train) -> Iterator[Fault]:
    """Faults: a privacy section, wavelets without noise, labels that the reports do not have, an unknown critic."""
    options = Options.model_validate(recipe.options)
    privatize = recipe.data.privatize
    if recipe.privacy is not None:
        yield ("privacy",), "wgan adds no noise: write privacy: none, and privatise the records first (data: privatize)"
    if options.wavelet and not recipe.data.noisy:
        message = "wavelets remove noise and these data have none: give data: privatize, or leave it out"
        yield ("options", "wavelet"), message
    if options.conditional and privatize is not None and not privatize.public_labels:
        message = "the reports have no labels: give data: privatize: public_labels: true, or leave it out"
        yield ("options", "conditional"), message
    if not registry.known("models", options.critic.name):
        yield ("options", "critic"), f"no model called {options.critic.name[:60]!r}"


def build_job(recipe: Train, data: Any, device: torch.device, *, adjacency: str) -> Job:
    """Build generator and critic, and the step that updates them on the records of a data set."""
    import numpy as np
    import torch

    from wpriv.papers.tasks import _quality, _wavelets, _wgan_critic
    from wpriv.training.engine.job import Job
    from wpriv.training.engine.update_rules import UpdateRule

    options = Options.model_validate(recipe.options)
    classes = len(data.classes) if options.conditional else 0
    label_count = len(np.unique(data.y_train))
    if options.conditional and label_count < 2:
        raise UsageError(
            f"options: conditional needs labels of at least two classes; found {label_count} in {data.name}"
        )
    pixels = _pixels(data)
    denoised, distances = pixels, {}
    if options.wavelet and data.noise is not None:
        wavelets = _wavelets.choose_wavelets(scaled(data.x_test), data.noise)
        denoised = wavelets(pixels)
        distances = {"noisy_distance": wavelets.before, "wavelet_distance": wavelets.after}
    records, labels = torch.from_numpy(denoised).to(device), torch.tensor(data.y_train, device=device)
    networks = _wgan_critic.build_networks(recipe.model, options.critic, data.shape, classes, options.penalty)
    networks = networks.to(device)
    optimizers = {
        name: UpdateRule(network.parameters(), recipe.optimizer) for name, network in networks.named_children()
    }
    # the same latents and labels at every evaluation, so that epochs differ by the weights alone
    latents = networks.draw_latents(options.compared)
    sample_labels = torch.arange(options.compared) % max(classes, 1)
    judge = _quality.fit_judge_if_possible(data)

    def custom_step(indices: Any, gate: ReleaseGate) -> torch.Tensor:
        rows = torch.from_numpy(indices).to(device)
        real, label = records.index_select(0, rows), labels.index_select(0, rows)
        loss = networks.critic_loss(real, label)
        _generation.descend(loss, optimizers["critic"])
        networks.steps += 1
        if int(networks.steps) % options.critic_steps == 0:
            _generation.descend(networks.generator_loss(label), optimizers["generator"])
        return torch.tensor([len(rows), len(rows) * float(loss.detach()), float("nan")], device=device)

    def evaluate() -> dict[str, float]:
        samples = networks.generate(latents, sample_labels)
        results = dict(distances)
        if judge is not None:
            results |= judge.scores(samples)
        elif len(data.x_test):
            valid = _quality.to_valid_samples(samples, data.shape)
            results["w2"] = _quality.w2(valid, torch.from_numpy(scaled(data.x_test)))
        if classes and len(data.x_test):
            learner = _quality.logistic(samples, sample_labels, classes)
            results["logistic"] = _quality.accuracy(learner, *_quality.test_tensors(data))
        return results

    def save_artifacts(folder: Path) -> None:
        if data.shape == (2,) or (len(data.shape) == 3 and data.shape[0] in (1, 3)):
            inputs = {"privatised": pixels} if data.noise is not None else {}
            inputs |= {"wavelets": denoised} if options.wavelet else {}
            samples = networks.generate(latents, sample_labels).numpy()
            np.savez(folder / "samples.npz", **_figure_arrays(samples, scaled(data.x_test), inputs))

    return Job(networks, None, evaluate, custom_step=custom_step, optimizers=optimizers, save_artifacts=save_artifacts)


def warnings(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a warning if a finished run chose wavelets on clear images."""
    if not any(row.get("wavelet_distance") is not None for row in rows):
        return []
    return [
        "wavelets were chosen by looking at clear held-out images, which an analyst of the reports does not have: "
        "this baseline is better than it could be in practice, as in the paper, and the guarantee of the reports does "
        "not cover that choice"
    ]


def _pixels(data: Any) -> Any:
    """The training records as float32, converted from cosine coefficients to pixels where they are such."""
    import torch

    from wpriv.papers.tasks import _denoising_loss

    x = scaled(data.x_train)
    if data.noise is None or data.noise.domain != "dct":
        return x
    return _denoising_loss.inverse(torch.from_numpy(x)).numpy()


def _figure_arrays(samples: Any, clear: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    """Arrays of samples.npz: rows of clear, noisy, denoised and generated images; generated points over clear ones."""
    if samples.ndim != 4:
        return {"samples": samples, **({"target": clear} if len(clear) else {})}
    columns = min(COLUMNS_SHOWN, len(samples))
    return _generation.picture({"original": clear, **inputs}, samples, columns, ROWS_SHOWN)


TASK = TaskSpec(
    options=Options,
    # loss: the critic's, an estimate of -W_1; logistic: accuracy of a classifier fitted to conditional samples
    results=("loss", *_generation.SCORES, "logistic", "noisy_distance", "wavelet_distance"),
    build_job=build_job,
    validate=validate,
    warnings=warnings,
    figures={"samples.npz": "samples"},
    trains_on_test_records=lambda recipe: Options.model_validate(recipe.options).wavelet is not None,
    needs_test_records=False,  # the owner of privatised records may have no others
)
