"""The recursion by which the noise C^-1 Z of a step follows from that of few earlier steps; computed without torch."""

from __future__ import annotations

from dataclasses import dataclass

from wpriv.errors import Unsupported
from wpriv.strategies import Strategy

# earlier steps, or buffers, of a recursion
MOST = 32


@dataclass(frozen=True)
class Recursion:
    """The noise w of step t from independent noise z: draws_0 z_t and one of three sums over earlier steps.

    Args:
        draws: weights of z_t, z_(t-1), ..., which are drawn again, so that no vector is kept.
        memory: weights of w_(t-1), w_(t-2), ..., which are kept.
        buffers: pairs of a weight and a decay d: the weight multiplies the sum of d^(k-1) draws_0 z_(t-k) over k, which
            is kept.
    """

    draws: tuple[float, ...]
    memory: tuple[float, ...] = ()
    buffers: tuple[tuple[float, float], ...] = ()

    @property
    def vectors(self) -> int:
        """The number of vectors as long as the model, of 8 bytes a number, that are kept between steps."""
        return len(self.memory) + len(self.buffers)

    @property
    def words(self) -> str:
        """What is kept or drawn again, for statements."""
        if self.vectors:
            return f"of earlier noise {self.vectors} vector{'s are' if self.vectors > 1 else ' is'} kept"
        again = len(self.draws) - 1
        steps = "step is" if again == 1 else f"{again} steps is"
        return f"that of the last {steps} drawn again from the stream" if again else "each step has its own"


def recursion(strategy: Strategy) -> Recursion:
    """Return the recursion of a strategy with the fewest earlier steps.

    Raises:
        Unsupported: all need more than ``MOST``.
    """
    scale = float(strategy.inverse[0])
    forms = [
        (strategy.inverse_bands - 1, Recursion(tuple(strategy.inverse[: strategy.inverse_bands].tolist()))),
        (strategy.bands - 1, Recursion((scale,), tuple((-scale * strategy.column[1 : strategy.bands]).tolist()))),
    ]
    if strategy.buffers:
        buffers = tuple((-weight, decay) for weight, decay in strategy.buffers)
        forms.append((len(buffers), Recursion((scale,), (), buffers)))
    earlier, form = min(forms, key=lambda pair: pair[0])
    if earlier > MOST:
        raise Unsupported(
            f"noise: the strategy {strategy.text} needs the noise of {earlier} earlier steps at each step; at most "
            f"{MOST} are kept or drawn again. Take lambda, or banded, blt or bisr with few bands"
        )
    return form
