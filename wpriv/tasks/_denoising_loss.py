"""Where generated records meet noisy ones: a generator with its loss, and what is to be known of the transport plans on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from wpriv.models._layers import OutputOffset
from wpriv.transport import cosine
from wpriv.transport.exact import exact
from wpriv.transport.sinkhorn import divergence, entropic

if TYPE_CHECKING:
    from wpriv.tasks._denoise_options import Options


class Meeting(nn.Module):
    """A generator, and what is to be known of its plans from batch to batch (buffers, so that a checkpoint holds it).

    Args:
        latent: numbers that go into the generator. problem: the order p of the cost and lambda. domain: of the noisy records.
    """

    watched: Tensor
    met: Tensor

    def __init__(self, generator: nn.Module, latent: int, options: Options, problem: tuple[int, float], domain: str):
        super().__init__()
        self.generator, self.latent, self.options, self.domain = generator, latent, options, domain
        self.p, self.lam = problem
        self.register_buffer("met", torch.zeros((), dtype=torch.int64))  # batches so far
        # plans, sums of marginal errors and of iterations, steps whose plan did not converge
        self.register_buffer("watched", torch.zeros(4))

    def latents(self, count: int, device: torch.device) -> Tensor:
        """[count, latent] numbers of the law that goes in, from torch's global generator."""
        draw = torch.rand if self.options.latent == "uniform" else torch.randn
        return draw(count, self.latent).to(device)

    def looks(self, count: int, device: torch.device) -> Tensor:
        """Latents to look at the generator with: of Gauss law with exactly its mean and covariance, which an affine generator passes on."""
        found = self.latents(count, device)
        if self.options.latent == "uniform" or count <= self.latent:
            return found
        found = (found - found.mean(0)).double()
        white: Tensor = torch.linalg.solve_triangular(
            torch.linalg.cholesky(found.T @ found / count), found.T, upper=False
        ).T
        return white.float()

    def begin(self, noisy: Tensor) -> None:
        """Starts the generator at the mean of the noisy records, which is that of the clear ones but for a little noise."""
        mean = self.shown(noisy.mean(0, keepdim=True))[0]
        for layer in self.generator.modules():
            if isinstance(layer, OutputOffset):
                layer.set_mean(mean)

    def made(self, latents: Tensor) -> Tensor:
        """[count, *shape] generated records, as the clear ones are."""
        was = self.generator.training
        self.generator.eval()
        with torch.no_grad():
            found: Tensor = self.generator(latents)
        self.generator.train(was)
        return found

    def shown(self, noisy: Tensor) -> Tensor:
        """Noisy records in the units of clear ones."""
        return cosine.inverse(noisy) if self.domain == "dct" else noisy

    def loss(self, noisy: Tensor) -> Tensor:
        """The loss of a batch of noisy records [n, *shape] against fresh generated ones; its gradient is that of the cost at that plan.

        Every plan is begun afresh: starting from the potentials that the same records had when they were last drawn spares no iterations.
        """
        made = self.generator(self.latents(self.options.generated or len(noisy), noisy.device))
        x = (cosine.cosine(made) if self.domain == "dct" else made).flatten(1)
        y, lam = noisy.flatten(1), self._risen()
        how: dict[str, Any] = {"tol": self.options.tol, "most": self.options.most}
        if self.options.loss == "plain":
            return exact(x, y, self.p)
        if self.options.loss == "sinkhorn-divergence":
            found = divergence(x, y, lam, self.p, **how)
            parts = (found.between, found.first, found.second)
            self._watch(
                max(float(part.marginal_error) for part in parts),
                sum(part.iterations for part in parts),
                bool(found.converged),
            )
            return found.value
        one = entropic(x, y, lam, self.p, **how)
        self._watch(float(one.marginal_error), one.iterations, bool(one.converged))
        return one.value

    def _risen(self) -> float:
        """lambda of this batch: geometrically from a quarter to the whole."""
        done = min(1.0, int(self.met) / self.options.rise) if self.options.rise else 1.0
        self.met += 1
        return self.lam * float(4 ** (done - 1))

    def seen(self) -> dict[str, float]:
        """Means over the plans since the last look; none where no plan was iterated."""
        steps, error, iterations, unconverged = self.watched.tolist()
        self.watched.zero_()
        return (
            {"marginal_error": error / steps, "iterations": iterations / steps, "unconverged": unconverged / steps}
            if steps
            else {}
        )

    def _watch(self, error: float, iterations: int, converged: bool) -> None:
        self.watched += torch.tensor([1.0, error, iterations, not converged], device=self.watched.device)
