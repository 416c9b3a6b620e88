"""Noise from a cryptographic stream: AES-256 in counter mode under a secret key, made normal by the rule of Box and Muller.

Whoever knows all records but one knows the two sums that a release may have come from, and so two candidates for its noise. Only one
fits the equations of a statistical generator, and those of the Mersenne Twister are linear: they can be solved. Nobody knows a test that
tells the stream of AES under an unknown key from chance.
"""

from __future__ import annotations

import math
import re
import secrets

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from torch import Tensor

from wpriv.errors import UsageError

KEY_BYTES = 32
PAIRS = 2**18  # made at a time: to ask for fewer takes longer than to make them
ZEROS = bytes(2**16)


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
        self._rooms: dict[torch.dtype, Tensor] = {}

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
        """[count] independent normal numbers of mean 0 and standard deviation ``scale``, in float32 or float64.

        They are off the normal law by rounding, and by the pairs farther than 9.3 standard deviations from 0 that never come: one in 2^62.
        """
        half = (count + 1) // 2
        found = torch.empty(2 * half, dtype=dtype, device=self.device)
        per_pair = 4 if dtype == torch.float64 else 3
        radius, fine, angle = self._room(dtype, 3 * PAIRS, self.device).view(3, PAIRS)
        stream = self._stream()
        for start in range(0, half, PAIRS):
            n = min(PAIRS, half - start)
            words = self._words(stream, per_pair * n).view(per_pair, n)
            # a share in (0, 1] of 62 bits: float32 holds all that matter where it is small, and the noise far out
            words[:2].bitwise_and_(2**31 - 1)
            low = fine[:n].copy_(words[1]).add_(0.5)
            size = radius[:n].copy_(words[0]).add_(low, alpha=2.0**-31).mul_(2.0**-31).log_().mul_(-2).sqrt_().mul_(scale)
            turn = angle[:n].copy_(words[2])
            if per_pair == 4:
                turn += low.copy_(words[3]).mul_(2.0**-32)
            turn.mul_(math.pi * 2.0**-31)
            one, other = found[2 * start : 2 * (start + n)].chunk(2)
            torch.cos(turn, out=one).mul_(size)
            torch.sin(turn, out=other).mul_(size)
        return found[:count]

    def uniform(self, count: int) -> Tensor:
        """[count] float32 in [0, 1], of 32 bits as far as the precision holds them."""
        found = torch.empty(count, device=self.device)
        stream = self._stream()
        for start in range(0, count, PAIRS):
            part = found[start : start + PAIRS]
            part.copy_(self._words(stream, len(part)))
        return found.mul_(2.0**-32).add_(0.5)

    def _stream(self) -> CipherContext:
        """The stream of the key, which is replaced by the first bits of it."""
        stream = Cipher(algorithms.AES256(self._key), modes.CTR(bytes(16))).encryptor()
        self._key = stream.update(bytes(KEY_BYTES))
        return stream

    def _words(self, stream: CipherContext, count: int) -> Tensor:
        """[count] int32, all 32 bits uniform; on the CPU they stay until the next call."""
        # the cipher asks for the room of one block more
        if self.device.type == "cpu":
            found = self._room(torch.int32, 4 * PAIRS + 4, self.device)
        else:
            found = torch.empty(count + 4, dtype=torch.int32, pin_memory=True)
        room = memoryview(found.numpy()).cast("B")  # type: ignore[arg-type]
        for start in range(0, 4 * count, len(ZEROS)):
            stream.update_into(memoryview(ZEROS)[: 4 * count - start], room[start:])
        return found[:count].to(self.device, non_blocking=True)

    def _room(self, dtype: torch.dtype, count: int, device: torch.device) -> Tensor:
        """Memory that is used again and again: to get it from the system each time takes as long as the noise."""
        if dtype not in self._rooms:
            self._rooms[dtype] = torch.empty(count, dtype=dtype, device=device)
        return self._rooms[dtype]
