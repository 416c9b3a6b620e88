"""How weights follow from noisy gradients: SGD, Adam and AdamW, bit for bit as ``torch.optim`` computes them.

The optimizers of torch load its compiler when the first is made, which takes as long as loading torch itself. The rules
here are the same operations on all weights at once, and they keep the same state under the same names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from wpriv.config.train_schema import Optimizer

# added to the root of Adam's second average
STABILITY = 1e-8


class Updates(Protocol):
    """What the engine needs of an optimizer: these methods as ``torch.optim.Optimizer`` has them."""

    param_groups: list[dict[str, Any]]

    def step(self) -> Any: ...

    def zero_grad(self) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


class UpdateRule:
    """The optimizer of a recipe for some weights.

    Args:
        weights: changed in place by ``step``, each by its ``grad``; weights without one stay as they are.
        plan: name, learning rate and further numbers. ``param_groups[0]["lr"]`` is the learning rate of the next step.
    Source:
        Sutskever et al. (2013) on momentum; Kingma, Ba (2015), Adam; Loshchilov, Hutter (2019), AdamW.
    """

    def __init__(self, weights: Iterable[nn.Parameter], plan: Optimizer):
        self.weights, self.plan = list(weights), plan
        self.param_groups: list[dict[str, Any]] = [{"params": self.weights, "lr": plan.lr}]
        self.state: dict[int, dict[str, Any]] = {}

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for weight in self.weights:
            weight.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Change the weights by their gradients."""
        # weights that are divided among processes and whole ones cannot be in one operation
        alike: dict[type, list[int]] = {}
        for place, weight in enumerate(self.weights):
            if weight.grad is not None:
                alike.setdefault(type(weight.grad), []).append(place)
        for places in alike.values():
            self._step(places)

    def _step(self, places: list[int]) -> None:
        weights: list[Tensor] = [self.weights[place] for place in places]
        grads = [weight.grad for weight in weights if weight.grad is not None]
        lr, decay = self.param_groups[0]["lr"], self.plan.weight_decay
        if self.plan.name == "adamw" and decay:
            torch._foreach_mul_(weights, 1 - lr * decay)
        elif decay:
            grads = list(torch._foreach_add(grads, weights, alpha=decay))
        if self.plan.name != "sgd":
            self._adam(places, weights, grads, lr)
            return
        torch._foreach_add_(weights, self._with_momentum(places, grads), alpha=-lr)

    def _with_momentum(self, places: list[int], grads: list[Tensor]) -> list[Tensor]:
        """Return what SGD takes from the weights, over the learning rate."""
        momentum = self.plan.momentum
        if not momentum:
            return grads
        old = [(place, grad) for place, grad in zip(places, grads, strict=True) if place in self.state]
        for place, grad in zip(places, grads, strict=True):
            if place not in self.state:
                self.state[place] = {"momentum_buffer": grad.clone()}
        if old:
            buffers = [self.state[place]["momentum_buffer"] for place, _ in old]
            torch._foreach_mul_(buffers, momentum)
            torch._foreach_add_(buffers, [grad for _, grad in old])
        buffers = [self.state[place]["momentum_buffer"] for place in places]
        return list(torch._foreach_add(grads, buffers, alpha=momentum)) if self.plan.nesterov else buffers

    def _adam(self, places: list[int], weights: list[Tensor], grads: list[Tensor], lr: float) -> None:
        for place, weight in zip(places, weights, strict=True):
            if place not in self.state:
                first, second = torch.zeros_like(weight), torch.zeros_like(weight)
                self.state[place] = {"step": 0, "exp_avg": first, "exp_avg_sq": second}
            self.state[place]["step"] += 1
        steps, firsts, seconds = ([self.state[p][key] for p in places] for key in ("step", "exp_avg", "exp_avg_sq"))
        beta1, beta2 = self.plan.betas
        torch._foreach_lerp_(firsts, grads, 1 - beta1)
        torch._foreach_mul_(seconds, beta2)
        torch._foreach_addcmul_(seconds, grads, grads, 1 - beta2)
        roots = torch._foreach_sqrt(seconds)
        torch._foreach_div_(roots, [(1 - beta2**step) ** 0.5 for step in steps])
        torch._foreach_add_(roots, STABILITY)
        torch._foreach_addcdiv_(weights, firsts, roots, [-(lr / (1 - beta1**step)) for step in steps])

    def state_dict(self) -> dict[str, Any]:
        """Return the state by the places of the weights, in the form of torch."""
        state = {place: dict(values) for place, values in self.state.items()}
        return {"state": state, "param_groups": [{"lr": self.param_groups[0]["lr"]}]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state."""
        self.state = {place: dict(values) for place, values in state_dict["state"].items()}
        self.param_groups[0]["lr"] = state_dict["param_groups"][0]["lr"]
