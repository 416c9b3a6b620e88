"""The loss of a generator against noisy records by entropic transport, and the cosine transform that it may use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from wpriv.training.engine.job import evaluating
from wpriv.training.models._layers import OutputOffset
from wpriv.transport.exact import exact
from wpriv.transport.sinkhorn import divergence, entropic

if TYPE_CHECKING:
    from wpriv.papers.tasks._denoise_options import Options


def matrix(n: int, like: Tensor) -> Tensor:
    """Return the [n, n] orthogonal matrix of the transform of n numbers, in the type and on the device of ``like``."""
    k = torch.arange(n, dtype=torch.float64)
    basis = torch.cos(math.pi / n * k[:, None] * (k + 0.5)) * math.sqrt(2 / n)
    basis[0] /= math.sqrt(2)
    return basis.to(like)


def cosine(x: Tensor) -> Tensor:
    """Transform each record: over height and width of [N, C, H, W], over the last axis of [N, D]. Preserves l2 norms.

    ``wpriv privatize --dct`` applies the same transform before it adds noise.

    Source:
        Ahmed, Natarajan, Rao (1974), scaled to be orthonormal.
    """
    coefficients = x @ matrix(x.shape[-1], x).T
    return coefficients if x.ndim < 3 else matrix(x.shape[-2], x) @ coefficients


def inverse(x: Tensor) -> Tensor:
    """Return the records whose coefficients under ``cosine`` are ``x``."""
    records = x @ matrix(x.shape[-1], x)
    return records if x.ndim < 3 else matrix(x.shape[-2], x).T @ records


class DenoisingGenerator(nn.Module):
    """A generator with its loss, and in buffers, so that checkpoints hold it, what the next batch needs to know.

    Args:
        latent: numbers that enter the generator. problem: the order p of the cost, and lambda.
        domain: of the noisy records; ``dct`` for cosine coefficients of images.
    """

    watched: Tensor
    met: Tensor

    def __init__(self, generator: nn.Module, latent: int, options: Options, problem: tuple[int, float], domain: str):
        super().__init__()
        self.generator, self.latent, self.options, self.domain = generator, latent, options, domain
        self.p, self.lam = problem
        self.register_buffer("met", torch.zeros((), dtype=torch.int64))  # batches so far
        # plans, sums of their marginal errors and of their iterations, plans that did not converge
        self.register_buffer("watched", torch.zeros(4))

    def draw_latents(self, count: int, device: torch.device) -> Tensor:
        """Draw [count, latent] numbers of the chosen distribution from torch's global generator."""
        draw = torch.rand if self.options.latent == "uniform" else torch.randn
        return draw(count, self.latent).to(device)

    def evaluation_latents(self, count: int, device: torch.device) -> Tensor:
        """Draw latents for evaluation; normal ones are standardised to mean 0 and covariance I exactly.

        An affine generator maps these moments exactly, so that its samples have no sampling error in them.
        """
        latents = self.draw_latents(count, device)
        if self.options.latent == "uniform" or count <= self.latent:
            return latents
        centred = (latents - latents.mean(0)).double()
        factor = torch.linalg.cholesky(centred.T @ centred / count)
        white: Tensor = torch.linalg.solve_triangular(factor, centred.T, upper=False).T
        return white.float()

    def start_at_mean(self, noisy: Tensor) -> None:
        """Initialise the generator's offsets at the mean of the noisy records, an estimate of the clear mean."""
        mean = self.to_clear_units(noisy.mean(0, keepdim=True))[0]
        for layer in self.generator.modules():
            if isinstance(layer, OutputOffset):
                layer.set_mean(mean)

    def generate(self, latents: Tensor) -> Tensor:
        """Generate records [count, *shape] in the units of clear records, in evaluation mode."""
        with torch.no_grad(), evaluating(self.generator):
            records: Tensor = self.generator(latents)
        return records

    def to_clear_units(self, noisy: Tensor) -> Tensor:
        """Return noisy records in the units of clear ones."""
        return inverse(noisy) if self.domain == "dct" else noisy

    def loss(self, noisy: Tensor) -> Tensor:
        """Return the loss of noisy records [n, *shape] against fresh generated ones.

        Its gradient is that of the cost with the plan held fixed. Each plan is iterated from zero potentials: starting
        from those that the same records had in their previous batch saves no iterations.
        """
        generated = self.generator(self.draw_latents(self.options.generated or len(noisy), noisy.device))
        x = (cosine(generated) if self.domain == "dct" else generated).flatten(1)
        y, lam = noisy.flatten(1), self._next_lambda()
        limits: dict[str, Any] = {"tol": self.options.tol, "max_iterations": self.options.most}
        if self.options.loss == "plain":
            return exact(x, y, self.p)
        if self.options.loss == "sinkhorn-divergence":
            result = divergence(x, y, lam, self.p, **limits)
            plans = (result.between, result.first, result.second)
            error = max(float(plan.marginal_error) for plan in plans)
            self._record_plan(error, sum(plan.iterations for plan in plans), bool(result.converged))
            return result.value
        plan = entropic(x, y, lam, self.p, **limits)
        self._record_plan(float(plan.marginal_error), plan.iterations, bool(plan.converged))
        return plan.value

    def _next_lambda(self) -> float:
        """Lambda of this batch: it increases geometrically from a quarter of its final value over ``options.rise``."""
        progress = min(1.0, int(self.met) / self.options.rise) if self.options.rise else 1.0
        self.met += 1
        return self.lam * float(4 ** (progress - 1))

    def pop_plan_diagnostics(self) -> dict[str, float]:
        """Return means over the plans since the previous call, and reset them; empty where no plan was iterated."""
        plans, error, iterations, unconverged = self.watched.tolist()
        self.watched.zero_()
        if not plans:
            return {}
        return {"marginal_error": error / plans, "iterations": iterations / plans, "unconverged": unconverged / plans}

    def _record_plan(self, error: float, iterations: int, converged: bool) -> None:
        self.watched += torch.tensor([1.0, error, iterations, not converged], device=self.watched.device)
