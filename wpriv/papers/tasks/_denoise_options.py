"""Options of the task that learns a generator from noisy reports."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from wpriv.config.field_types import BeforeValidator, Count, Field, StrictModel


def _lam(value: Any) -> Any:
    if value in ("theorem", "corollary-1") or (type(value) in (int, float) and 0 < value < float("inf")):
        return value
    raise ValueError("must be a number above 0, theorem (p sigma^p of the noise) or corollary-1 (1/b of Laplace noise)")


class Options(StrictModel):
    """Keys under ``options`` of a recipe."""

    loss: Literal["entropic", "plain", "sinkhorn-divergence"] = Field(
        "entropic",
        description="entropic transport, exact transport (plain), or the debiased divergence; the last two learn the "
        "noise as well, as far as the network can make it",
    )
    lam: Annotated[Any, BeforeValidator(_lam)] = Field(
        "theorem",
        description="lambda, the weight of the entropy: a number, theorem (p sigma^p of the noise) or corollary-1 (1/b "
        "of Laplace noise, as printed, which is wrong)",
    )
    p: Literal[1, 2] | None = Field(None, description="the order of the cost; that of the noise where left out")
    rise: Annotated[int, Field(ge=0)] = Field(
        0,
        description="steps in which lambda rises from a quarter to its full value, at which a generator of a single "
        "record would hardly move",
    )
    latent: Literal["uniform", "gauss"] = Field(
        "uniform", description="distribution of the generator's inputs: on [0, 1], or standard normal"
    )
    generated: Count | None = Field(None, description="generated records of a step (default: as many as noisy ones)")
    tol: Annotated[float, Field(gt=1e-6, lt=1)] = Field(
        1e-3, description="marginal error at which a plan counts as converged"
    )
    most: Annotated[int, Field(ge=1)] = Field(400, description="Sinkhorn iterations of a step at most")
    compared: Annotated[int, Field(ge=2, le=5000)] = Field(
        1000, description="generated records that are measured, at most"
    )
