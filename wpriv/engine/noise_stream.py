"""Noise from a cryptographic stream: AES-256 in counter mode under a secret key, made normal by the rule of Box and Muller.

Whoever knows all records but one knows the two sums that a release may have come from, and so two candidates for its noise. Only one
fits the equations of a statistical generator, and those of the Mersenne Twister are linear: they can be solved. Nobody knows a test that
tells the stream of AES under an unknown key from chance.

A pair of numbers takes 126 bits of the stream: 62 of a uniform share U, and 64 of an angle T in turns. The pair is
sqrt(-2 ln U) cos(2 pi T) and sqrt(-2 ln U) sin(2 pi T), in float64. ``whole`` gives the same numbers rounded to a grid,
and exactly so: where float64 cannot decide the multiple, more bits of U and T are drawn (wpriv/engine/rounded_normals.py).
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Iterator
from typing import NamedTuple

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from torch import Tensor

from wpriv.engine import rounded_normals
from wpriv.errors import UsageError

KEY_BYTES = 32
PAIRS = 2**18  # made at a time: to ask for fewer takes longer than to make them
ZEROS = bytes(2**16)
# Counters of a key: from 0 the next key and the words of all draws, from FINE low bits of angles, from MORE the bits
# that cells.py asks for
FINE, MORE = 2**127, 2**127 + 2**126
WIDEST = 2.0**37
"""The largest standard deviation of ``whole``, in units of its grid."""
DOUBT = 2.0**-39
"""A bound on the error of a normal number in float64 whose U is in [2^-24, 1 - 2^-16]; see ``Noise.whole``."""
NEAREST, FARTHEST = math.sqrt(2.0**-15), math.sqrt(48 * math.log(2))
"""The lengths sqrt(-2 ln U) of pairs whose U is in that range lie between sqrt(2 * 2^-16) and sqrt(2 * 24 ln 2)."""


class Piece(NamedTuple):
    """Pairs that were made together.

    Args:
        start: the number of the first of them in the draw. numbers: [2, n] the first and the second of each, on the
            scale asked for.
        words: [3, n] the high and low 31 bits of U and the high 32 of T. fine: [n] the low 32 of T, with a sign.
        lengths: [n] the lengths of the pairs, on that scale.
    """

    start: int
    numbers: Tensor
    words: Tensor
    fine: Tensor
    lengths: Tensor


class Noise:
    """The noise of a run, one draw after another.

    Every draw also draws the key of the next, so that a state saved later tells nothing of it.

    Args:
        key: 32 bytes, by default from the operating system; whoever knows them can draw the same noise.
        device: where the numbers are wanted; their bits are made on the CPU and are the same for all.
    Raises:
        UsageError: the key has another length.
    """

    def __init__(self, key: bytes | None = None, device: torch.device | str = "cpu"):
        self.device = torch.device(device)
        self.restore((secrets.token_bytes(KEY_BYTES) if key is None else key).hex())
        self._rooms: dict[str, Tensor] = {}

    def state(self) -> str:
        """All that the next draws hang on."""
        return self._key.hex()

    def restore(self, state: str) -> None:
        """Goes on from a saved state.

        Raises:
            UsageError: it is none.
        """
        if not re.fullmatch(f"[0-9a-f]{{{2 * KEY_BYTES}}}", state):
            raise UsageError(f"the noise needs a key of {KEY_BYTES} bytes; found {len(state) // 2}")
        self._key = bytes.fromhex(state)

    def normal(self, count: int, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
        """[count] independent normal numbers of mean 0 and standard deviation ``scale``, made in float64.

        They are off the normal law by rounding, to ``dtype`` in the end, and by the pairs farther than 9.3 standard
        deviations from 0 that never come: one in 2^62.
        """
        numbers = torch.empty(count + count % 2, dtype=torch.float64, device=self.device)
        for _ in self._pieces(numbers, scale, self._key, self._stream()):
            pass
        return numbers[:count].to(dtype)

    def whole(self, count: int, deviation: float, doubt: float = DOUBT) -> Tensor:
        """[count] independent whole numbers in float64, exactly distributed as round(deviation * Z), Z standard normal.

        Exactly: U and T stand for uniform numbers of infinitely many bits, of which Box and Muller's rule makes
        independent standard normal numbers z. The whole number next to y = deviation * z is found from the first bits
        of U and T. It is returned only where it is the same for all values of the bits that were not drawn, and where
        it is not, more bits are drawn, which ends with probability one. So what is returned is round(y) of the
        infinite bits. (The bits are those of AES-256 under the key, taken as random.)

        In float64 the first bits decide where y lies farther from the half between two whole numbers than its error.
        Let u be the float64 of U, with U in [2^-24, 1 - 2^-16]. Then |u - U| / U <= 2^-53 + 2^-63 / U, by rounding
        and by the bits that were not drawn, and the length sqrt(-2 ln U), which is between 2^-7.5 and 5.77, is off by
        at most that over the length: the largest value is 2^-41.5, at U = 2^-24. The angle is off by at most 3
        roundings of up to pi and 2^-64 turns, and moves z by less than 5.77 * 2^-49. Both together are below 2^-41,
        and leave 2^-39 - 2^-41 to the float64 functions of torch: z stays within 2^-39 as long as log, sqrt, cos and
        sin err by less than 2^-44 of their largest values (log and sqrt: of their own), five hundred units in the last
        place, where the libraries that torch uses promise four or fewer. Whatever lies outside of that range of U, or
        closer to a half than ``deviation * 2^-39``, goes to cells.py, which takes intervals in as many digits as it
        needs.

        Args:
            deviation: in units of the grid, above 0 and at most 2^37.
            doubt: the bound 2^-39; larger ones only send more numbers to cells.py, and give the same.
        Raises:
            UsageError: the standard deviation is out of range.
        """
        if not 0 < deviation <= WIDEST:
            raise UsageError(
                f"rounded noise has a standard deviation above 0 and up to {WIDEST:g} grids; found {deviation}"
            )
        key, margin = self._key, 0.5 - deviation * doubt
        numbers = torch.empty(count + count % 2, dtype=torch.float64, device=self.device)
        for piece in self._pieces(numbers, deviation, key, self._stream()):
            drawn = piece.numbers
            rounded = torch.round(drawn)
            unsure = drawn.sub_(rounded).abs_() > margin
            drawn.copy_(rounded)
            unsure |= (piece.lengths < deviation * NEAREST) | (piece.lengths > deviation * FARTHEST)
            for side, pair in unsure.nonzero().tolist():
                drawn[side, pair] = self._decided(piece, side, pair, deviation, key)
        return numbers[:count]

    def uniform(self, count: int) -> Tensor:
        """[count] float32 in [0, 1], of 32 bits as far as the precision holds them."""
        numbers = torch.empty(count, device=self.device)
        stream = self._stream()
        for start in range(0, count, PAIRS):
            part = numbers[start : start + PAIRS]
            part.copy_(self._words(stream, len(part)))
        return numbers.mul_(2.0**-32).add_(0.5)

    def _pieces(self, numbers: Tensor, scale: float, key: bytes, stream: CipherContext) -> Iterator[Piece]:
        """Fill ``numbers`` with normal ones a piece at a time: the first numbers of its pairs, then the second ones."""
        fine_stream = _counting(key, FINE)
        for start in range(0, len(numbers) // 2, PAIRS):
            n = min(PAIRS, len(numbers) // 2 - start)
            fine = self._room("fine", torch.int32, PAIRS, self.device)[:n].copy_(self._words(fine_stream, n))
            words = self._words(stream, 3 * n).view(3, n)
            # a share in (0, 1) of 62 bits, those that are not drawn half way
            words[:2].bitwise_and_(2**31 - 1)
            both = numbers[2 * start : 2 * (start + n)].view(2, n)
            radius, low, angle = self._room("numbers", torch.float64, 3 * PAIRS, self.device)[: 3 * n].view(3, n)
            low.copy_(words[1]).add_(0.5)
            radius.copy_(words[0]).add_(low, alpha=2.0**-31).mul_(2.0**-31).log_().mul_(-2).sqrt_().mul_(scale)
            angle.copy_(words[2]).add_(low.copy_(fine), alpha=2.0**-32).mul_(math.pi * 2.0**-31)
            torch.cos(angle, out=both[0]).mul_(radius)
            torch.sin(angle, out=both[1]).mul_(radius)
            yield Piece(start, both, words, fine, radius)

    def _decided(self, piece: Piece, side: int, pair: int, deviation: float, key: bytes) -> int:
        """The first (side 0) or second whole number of a pair of a piece, from as many bits as it takes."""
        high, low, turn = (int(word) for word in piece.words[:, pair])
        share = rounded_normals.Dyadic((high << 31) + low, 62)
        angle = rounded_normals.Dyadic((turn << 32) + int(piece.fine[pair]), 64)

        def more(level: int) -> tuple[int, int]:
            block = _counting(key, MORE + (level << 64) + piece.start + pair).update(bytes(16))
            return int.from_bytes(block[:8], "big"), int.from_bytes(block[8:], "big")

        return rounded_normals.nearest(share, angle, more, deviation, second=side == 1)

    def _stream(self) -> CipherContext:
        """The stream of the key, which is replaced by the first bits of it."""
        stream = _counting(self._key, 0)
        self._key = stream.update(bytes(KEY_BYTES))
        return stream

    def _words(self, stream: CipherContext, count: int) -> Tensor:
        """[count] int32, all 32 bits uniform; on the CPU they stay until the next call."""
        # the cipher asks for the room of one block more
        if self.device.type == "cpu":
            words = self._room("words", torch.int32, 3 * PAIRS + 4, self.device)
        else:
            words = torch.empty(count + 4, dtype=torch.int32, pin_memory=True)
        memory = memoryview(words.numpy()).cast("B")  # type: ignore[arg-type]
        for start in range(0, 4 * count, len(ZEROS)):
            stream.update_into(memoryview(ZEROS)[: 4 * count - start], memory[start:])
        return words[:count].to(self.device, non_blocking=True)

    def _room(self, name: str, dtype: torch.dtype, count: int, device: torch.device) -> Tensor:
        """Memory that is used again and again: to get it from the system each time takes as long as the noise."""
        if name not in self._rooms:
            self._rooms[name] = torch.empty(count, dtype=dtype, device=device)
        return self._rooms[name]


def _counting(key: bytes, start: int) -> CipherContext:
    """The stream of a key from one value of the counter on."""
    return Cipher(algorithms.AES256(key), modes.CTR(start.to_bytes(16, "big"))).encryptor()
