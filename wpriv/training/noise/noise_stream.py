"""Normal and uniform noise on torch tensors, made of a cryptographic stream (wpriv/randomness.py).

Normal numbers come in pairs, by the rule of Box and Muller. A pair takes 126 bits of the stream: 62 of a uniform
number U in (0, 1) and 64 of an angle T in turns; it is sqrt(-2 ln U) cos(2 pi T) and sqrt(-2 ln U) sin(2 pi T), in
float64, by torch or, of many numbers on a CPU, by the compiled function (library.py). ``rounded_normal`` returns the
same numbers rounded to whole ones without error: where float64 cannot determine the whole number, more bits of U and T
are drawn.
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wpriv.errors import UsageError
from wpriv.randomness import BLOCK_BYTES, KEY_BYTES, Keystream, new_key
from wpriv.training.noise import library
from wpriv.training.noise.recursion import Recursion

# --- rounding that float64 cannot decide: interval arithmetic on uniform numbers drawn bit by bit ---
#
# A uniform number on [0, 1) of which n bits are drawn lies in [a, a+1] / 2^n. Box and Muller's rule on such intervals
# encloses the normal number; where the enclosure contains the midpoint of two integers, 64 more bits of each uniform
# number are drawn.

# bits of each uniform number that are drawn at a time
BITS = 64


class Dyadic(NamedTuple):
    """The interval [numerator, numerator + 1] / 2^bits; of an angle, in turns, modulo 1."""

    numerator: int
    bits: int

    def refined(self, word: int) -> Dyadic:
        """Return the part of this interval that the next 64 bits select."""
        return Dyadic((self.numerator << BITS) + word, self.bits + BITS)


More = Callable[[int], tuple[int, int]]


def nearest(share: Dyadic, angle: Dyadic, more: More, deviation: float, *, second: bool) -> int:
    """Return round(deviation * sqrt(-2 ln U) * cos(2 pi T)), or with ``second`` that of the sine.

    Args:
        share, angle: the intervals of U and of T, in turns. deviation: above 0.
        more: (1, 2, ...) -> the next 64 bits of U and of T, the same at every call.
    """
    level = 0
    while True:
        low, high = _rounded(share, angle, deviation, second)
        if low is not None and low == high:
            return low
        level += 1
        words = more(level)
        share, angle = share.refined(words[0]), angle.refined(words[1])


def _rounded(share: Dyadic, angle: Dyadic, deviation: float, second: bool) -> tuple[int | None, int | None]:
    """Return the integers nearest to both ends of the enclosure; None where U may be 0 and there is no enclosure."""
    from mpmath.libmp import mpf_floor, to_int

    if share.numerator == 0:
        return None, None
    iv = _intervals()
    # twice the bits that are drawn: the rounding of the functions is far below the width of the intervals
    iv.prec = 2 * max(share.bits, angle.bits)
    length = iv.sqrt(-2 * iv.log(_interval(iv, share)))
    turn = 2 * iv.pi * _interval(iv, angle)
    value = (iv.sin(turn) if second else iv.cos(turn)) * length * iv.mpf(deviation) + iv.mpf(0.5)
    low, high = (int(to_int(mpf_floor(end))) for end in value._mpi_)
    return low, high


@functools.cache
def _intervals() -> Any:
    """Return a context of mpmath's interval arithmetic whose precision no other code sets."""
    from mpmath.ctx_iv import MPIntervalContext

    return MPIntervalContext()


def _interval(iv: Any, number: Dyadic) -> Any:
    return iv.mpf([number.numerator, number.numerator + 1]) / iv.mpf(2) ** number.bits


# pairs that are made at a time; smaller pieces take longer per number
PAIRS = 2**18
# pairs of a draw from which the compiled function is worth compiling
COMPILE = 2**13
# counters of a key: from 0 the next key and the words of all draws, from FINE the low bits of angles, from MORE the
# further bits for ``rounded_normal``
FINE, MORE = 2**127, 2**127 + 2**126
KEY_BLOCKS = KEY_BYTES // BLOCK_BYTES
# the largest standard deviation of ``rounded_normal``
MAX_DEVIATION = 2.0**37
# bound on the error of a normal number in float64 with U in [2^-24, 1 - 2^-16]; see ``Noise.rounded_normal``
ERROR_BOUND = 2.0**-39
# the lengths sqrt(-2 ln U) of pairs with U in that range lie between sqrt(2 * 2^-16) and sqrt(2 * 24 ln 2)
MIN_LENGTH, MAX_LENGTH = math.sqrt(2.0**-15), math.sqrt(48 * math.log(2))


class Piece(NamedTuple):
    """Pairs that were made together.

    Args:
        start: the number of the first pair in the draw.
        numbers: [2, n] the first and the second number of each pair, scaled.
        words: [3, n] the high and low 31 bits of U and the high 32 bits of T.
        fine: [n] the low 32 bits of T, as signed integers. lengths: [n] the scaled lengths of the pairs.
    """

    start: int
    numbers: Tensor
    words: Tensor
    fine: Tensor
    lengths: Tensor


class Noise:
    """The noise of a run, one draw after another.

    Every draw also draws the key of the next, so that a state saved later reveals nothing about it.

    Args:
        key: 32 bytes, by default from the operating system; whoever knows them can repeat the noise.
        device: of the returned tensors; the bits are made on the CPU and are the same for all devices.
    Raises:
        UsageError: the key has another length.
    """

    def __init__(self, key: bytes | None = None, device: torch.device | str = "cpu"):
        self.device = torch.device(device)
        self.restore((new_key() if key is None else key).hex())
        self._buffers: dict[str, Tensor] = {}

    def state(self) -> str:
        """Return the state that determines all later draws."""
        return self._key.hex()

    def restore(self, state: str) -> None:
        """Continue from a saved state."""
        if not re.fullmatch(f"[0-9a-f]{{{2 * KEY_BYTES}}}", state):
            raise UsageError(f"the noise needs a key of {KEY_BYTES} bytes; found {len(state) // 2}")
        self._key = bytes.fromhex(state)

    def normal(self, count: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return [count] independent normal numbers of mean 0 and standard deviation ``scale``, made in float64.

        They differ from the normal distribution by rounding, at last to ``dtype``, and by the pairs longer than 9.3
        standard deviations, which do not occur: one in 2^62.
        """
        numbers = torch.empty(count + count % 2, dtype=torch.float64, device=self.device)
        for _ in self._pieces(numbers, scale, self._key, self._next_stream()):
            pass
        return numbers[:count].to(dtype)

    def normal_at(self, places: Sequence[tuple[int, int]], count: int, scale: float = 1.0) -> Tensor:
        """Return some of the numbers of ``normal(count, scale)`` in float64, one place after another.

        All numbers are drawn, a piece at a time, and so the state afterwards is that after ``normal``.

        Args:
            places: the first number and how many, for each run of numbers.
        """
        result = torch.empty(sum(length for _, length in places), dtype=torch.float64, device=self.device)
        buffer = self._buffer("pairs", torch.float64, 2 * PAIRS, self.device)
        for piece in self._pieces(buffer, scale, self._key, self._next_stream(), (count + 1) // 2):
            numbers, start, at = piece.numbers.reshape(-1), 2 * piece.start, 0
            for first, length in places:
                low, high = max(first, start), min(first + length, start + len(numbers))
                if low < high:
                    result[at + low - first : at + high - first] = numbers[low - start : high - start]
                at += length
        return result

    def rounded_normal(self, count: int, deviation: float, error_bound: float = ERROR_BOUND) -> Tensor:
        """Return [count] independent integers in float64, exactly distributed as round(deviation * Z), Z ~ N(0, 1).

        float64 decides where y = deviation * z is farther than ``deviation * 2^-39`` from the midpoint of two integers
        and U is in [2^-24, 1 - 2^-16]; all others go to ``nearest``. docs/concepts/floating-point.md has the proof.

        Args:
            deviation: the standard deviation before rounding, above 0 and at most 2^37.
            error_bound: the bound 2^-39; a larger one sends more numbers there and changes no result.
        """
        if not 0 < deviation <= MAX_DEVIATION:
            raise UsageError(
                f"rounded noise needs a standard deviation above 0 and up to {MAX_DEVIATION:g} grids; found {deviation}"
            )
        key, margin = self._key, 0.5 - deviation * error_bound
        numbers = torch.empty(count + count % 2, dtype=torch.float64, device=self.device)
        for piece in self._pieces(numbers, deviation, key, self._next_stream()):
            rounded = torch.round(piece.numbers)
            undecided = piece.numbers.sub_(rounded).abs_() > margin
            piece.numbers.copy_(rounded)
            undecided |= (piece.lengths < deviation * MIN_LENGTH) | (piece.lengths > deviation * MAX_LENGTH)
            for side, pair in undecided.nonzero().tolist():
                piece.numbers[side, pair] = self._round_exactly(piece, side, pair, deviation, key)
        return numbers[:count]

    def noisy_sum(
        self, parts: Sequence[Tensor], scale: float, grid: float, earlier: Sequence[tuple[float, str]] = ()
    ) -> list[Tensor] | None:
        """Return ``grid * round(part / grid + z)`` of all parts, z being one draw of ``normal`` with this scale.

        The compiled functions make it in one pass, without keeping the noise; None where they cannot, and then nothing
        was drawn.

        Args:
            parts: on this device. grid: a power of two.
            earlier: scales of draws from earlier states, see ``state``, which are made again and added to z.
        """
        count = sum(part.numel() for part in parts)
        functions = self._functions((count + 1) // 2)
        if functions is None or any(part.dtype != torch.float32 for part in parts):
            return None
        results = [torch.empty(part.shape, dtype=part.dtype, device=self.device) for part in parts]
        values = [part.detach().contiguous() for part in parts]
        keys = [bytes.fromhex(state) for _, state in earlier]
        draws = [self._bits(self._key, self._next_stream(), (count + 1) // 2)]
        # the words behind those of the next key
        draws += [self._bits(key, Keystream(key, KEY_BLOCKS), (count + 1) // 2, f" {n}") for n, key in enumerate(keys)]
        scales = [scale, *(weight for weight, _ in earlier)]
        for pieces in zip(*draws, strict=True):
            bits = [(words, fine) for _, words, fine in pieces]
            library.noisy_sum(functions, bits, scales, grid, 2 * pieces[0][0], values, results)
        return results

    def uniform(self, count: int) -> Tensor:
        """Return [count] float32 in [0, 1], made of 32 bits each and rounded to float32."""
        numbers = torch.empty(count, device=self.device)
        stream = self._next_stream()
        for start in range(0, count, PAIRS):
            part = numbers[start : start + PAIRS]
            part.copy_(self._words(stream, len(part)))
        return numbers.mul_(2.0**-32).add_(0.5)

    def _pieces(
        self, numbers: Tensor, scale: float, key: bytes, stream: Keystream, count: int | None = None
    ) -> Iterator[Piece]:
        """Fill ``numbers`` with normal ones a piece at a time: the first numbers of its pairs, then the second ones.

        With a ``count`` of pairs, ``numbers`` has room for one piece, and each piece overwrites the one before.
        """
        total = len(numbers) // 2 if count is None else count
        functions = self._functions(total)
        for start, words, fine in self._bits(key, stream, total):
            n, place = len(fine), 2 * start if count is None else 0
            words[:2].bitwise_and_(2**31 - 1)
            pairs = numbers[place : place + 2 * n].view(2, n)
            radius, low, angle = self._buffer("numbers", torch.float64, 3 * PAIRS, self.device)[: 3 * n].view(3, n)
            if functions is not None:
                library.normal_pairs(functions, words, fine, scale, pairs, radius)
                yield Piece(start, pairs, words, fine, radius)
                continue
            # U in (0, 1) of 62 bits, in the middle of the interval that the bits not drawn leave
            low.copy_(words[1]).add_(0.5)
            radius.copy_(words[0]).add_(low, alpha=2.0**-31).mul_(2.0**-31).log_().mul_(-2).sqrt_().mul_(scale)
            angle.copy_(words[2]).add_(low.copy_(fine), alpha=2.0**-32).mul_(math.pi * 2.0**-31)
            torch.cos(angle, out=pairs[0]).mul_(radius)
            torch.sin(angle, out=pairs[1]).mul_(radius)
            yield Piece(start, pairs, words, fine, radius)

    def _functions(self, pairs: int) -> ctypes.CDLL | None:
        """Return the compiled functions where a draw of so many pairs is worth them."""
        return library.library() if self.device.type == "cpu" and pairs >= COMPILE else None

    def _bits(self, key: bytes, stream: Keystream, total: int, name: str = "") -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield the bits of a number of pairs a piece at a time: the first pair, ``Piece.words``, and ``Piece.fine``.

        The highest bit of each half of U is random too, and not part of it.
        """
        fine_stream = Keystream(key, FINE)
        for start in range(0, total, PAIRS):
            n = min(PAIRS, total - start)
            words = self._words(stream, 3 * n, f"words{name}").view(3, n)
            yield start, words, self._words(fine_stream, n, f"fine{name}")

    def _round_exactly(self, piece: Piece, side: int, pair: int, deviation: float, key: bytes) -> int:
        """Return the first (side 0) or second rounded number of a pair, from as many bits as it takes."""
        high, low, turn = (int(word) for word in piece.words[:, pair])
        share = Dyadic((high << 31) + low, 62)
        angle = Dyadic((turn << 32) + int(piece.fine[pair]), 64)

        def more(level: int) -> tuple[int, int]:
            block = Keystream(key, MORE + (level << 64) + piece.start + pair).read(16)
            return int.from_bytes(block[:8], "big"), int.from_bytes(block[8:], "big")

        return nearest(share, angle, more, deviation, second=side == 1)

    def _next_stream(self) -> Keystream:
        """Return the stream of the key, and replace the key by its first bits."""
        stream = Keystream(self._key)
        self._key = stream.read(KEY_BYTES)
        return stream

    def _words(self, stream: Keystream, count: int, name: str = "words") -> Tensor:
        """Return [count] int32, all 32 bits uniform; on the CPU the next call of a name overwrites them."""
        # the cipher needs room for one block more
        if self.device.type == "cpu":
            words = self._buffer(name, torch.int32, 3 * PAIRS + 4, self.device)
        else:
            words = torch.empty(count + 4, dtype=torch.int32, pin_memory=True)
        stream.fill(memoryview(words.numpy()).cast("B"), 4 * count)  # type: ignore[arg-type]
        return words[:count].to(self.device, non_blocking=True)

    def _buffer(self, name: str, dtype: torch.dtype, count: int, device: torch.device) -> Tensor:
        """Return memory that is used again: allocating it each time would take as long as making the noise."""
        if name not in self._buffers:
            self._buffers[name] = torch.empty(count, dtype=dtype, device=device)
        return self._buffers[name]


class CorrelatedNoise:
    """Noise that is correlated between steps: each draw is that of the next step of a training.

    The training releases C x + Z row by row, so that the sum x_t of step t gets the noise w_t = (C^-1 Z)_t. Of earlier
    z only the states of the source are kept, from which they are drawn again, or a few vectors (``Recursion``).

    All draws have as many numbers. The state of the last ``len(recursion.draws) - 1`` steps remains until it is not
    needed any more: whoever reads it knows that part of the noise, as with the key of the noise to come.

    Args:
        source: the independent noise; other draws may come between, such as that of counts of test records.
    """

    def __init__(self, recursion: Recursion, source: Noise):
        self.recursion, self.source, self.again = recursion, source, Noise(device=source.device)
        # states of the source before the last draws, the last first; and vectors, in standard deviations of z
        self.keys: list[str] = []
        self.vectors: list[Tensor] = []

    def state(self) -> dict[str, Any]:
        """Return what ``restore`` continues from, beside the state of the source."""
        form = self.recursion
        numbers = [*form.draws, *form.memory, *(number for pair in form.buffers for number in pair)]
        return {"keys": self.keys, "vectors": self.vectors, "recursion": numbers}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a saved state.

        Raises:
            UsageError: it has the noise of another recursion.
        """
        numbers = self.state()["recursion"]
        if not np.allclose(np.array([0.0, *state["recursion"]]), [0.0, *numbers], rtol=1e-9, atol=0):
            raise UsageError(
                "the coefficients of the strategy are not those of the checkpoint, so that the noise would not cancel "
                "as it is accounted for. Continue with the software that began it, or with `fork=True`"
            )
        self.keys, self.vectors = list(state["keys"]), list(state["vectors"])

    def normal(self, count: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
        """Return [count] numbers of the next step's noise, for z of standard deviation ``scale``."""
        return self._next(lambda noise, weight: noise.normal(count, weight, torch.float64), scale).to(dtype)

    def normal_at(self, places: Sequence[tuple[int, int]], count: int, scale: float = 1.0) -> Tensor:
        """Return some of the numbers of ``normal(count, scale)`` in float64; see ``Noise.normal_at``."""
        return self._next(lambda noise, weight: noise.normal_at(places, count, weight), scale)

    def noisy_sum(self, parts: Sequence[Tensor], scale: float, grid: float) -> list[Tensor] | None:
        """Return the rounded sums of ``Noise.noisy_sum`` with the next step's noise, where no vector is kept."""
        if self.recursion.vectors:
            return None
        first, *others = self.recursion.draws
        earlier = [(weight * scale, key) for weight, key in zip(others, self.keys, strict=False)]
        state = self.source.state()
        sums = self.source.noisy_sum(parts, first * scale, grid, earlier)
        if sums is not None:
            self._note(state)
        return sums

    def _next(self, draw: Callable[[Noise, float], Tensor], scale: float) -> Tensor:
        """The next step's noise, for z of standard deviation ``scale``; ``draw`` draws z of a weight from a source."""
        state, form = self.source.state(), self.recursion
        noise = draw(self.source, form.draws[0])
        for weight, key in zip(form.draws[1:], self.keys, strict=False):
            self.again.restore(key)
            noise.add_(draw(self.again, weight))
        self._note(state)
        if not form.vectors:
            return noise.mul_(scale)
        for weight, vector in zip(form.memory, self.vectors, strict=False):
            noise.add_(vector, alpha=weight)
        if form.memory:
            self.vectors = [noise, *self.vectors][: len(form.memory)]
            return noise * scale
        vectors = self.vectors or [torch.zeros_like(noise) for _ in form.buffers]
        total = noise.clone()
        for (weight, decay), vector in zip(form.buffers, vectors, strict=True):
            total.add_(vector, alpha=weight)
            torch.add(noise, vector, alpha=decay, out=vector)
        self.vectors = vectors
        return total.mul_(scale)

    def _note(self, state: str) -> None:
        self.keys = [state, *self.keys][: len(self.recursion.draws) - 1]
