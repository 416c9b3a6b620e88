"""Inner loops in C (kernels.c), compiled on this machine when a training is first large enough to gain by them.

They repeat what wpriv does with torch. Without a C compiler, on another device than a CPU, or with WPRIV_COMPILE=0 in
the environment, torch does it. Each is compared with torch before it is used. The clipping norm holds whatever
``kernel_gradients`` computes, since a gradient is scaled by the norm of the very numbers that are added.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

SOURCE = Path(__file__).with_name("kernels.c")
FLAGS = ("-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fPIC", "-shared")
VARIABLE = "WPRIV_COMPILE"
SECONDS = 60
# multiply-adds of an example's gradient from which ``kernel_gradients`` is worth compiling
COMPILE = 2**17
# the largest difference from torch, relative to the length of a pair, at which normal numbers are accepted
MAX_ERROR = 2.0**-46


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the compiled functions; None if they are not wanted, cannot be compiled, or do not agree with torch."""
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if os.environ.get(VARIABLE) == "0" or compiler is None:
        return None
    try:
        # a loaded library stays when its file is removed; each process compiles for the processor that it runs on
        with tempfile.TemporaryDirectory(prefix="wpriv-") as folder:
            path = Path(folder) / "kernels.so"
            command = [compiler, *FLAGS, str(SOURCE), "-o", str(path), "-lm"]
            subprocess.run(command, check=True, capture_output=True, timeout=SECONDS)
            functions = ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError):
        return None
    return functions if _agrees(functions) else None


def used() -> str:
    """Return ``compiled`` if this process has the compiled functions already, else ``torch``; nothing is compiled."""
    return "compiled" if library.cache_info().currsize and library() is not None else "torch"


def kernel_gradients(
    functions: ctypes.CDLL,
    h: Tensor,
    delta: Tensor,
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
) -> Tensor:
    """Return the gradients [B, P, kernel, C] of a convolution's kernel for h [B, C, ...] and delta [B, P, ...].

    Args:
        h, delta: float32 on a CPU, in any memory layout; of images (two spatial dimensions), in one group.
    """
    result = h.new_empty(len(h), delta.shape[1], *kernel, h.shape[1])
    threads = min(torch.get_num_threads(), len(h))

    def treat(part: int) -> int:
        rows = slice(len(h) * part // threads, len(h) * (part + 1) // threads)
        x, d, out = h[rows], delta[rows], result[rows]
        sizes = (*x.shape, *d.shape[1:], *kernel, *stride, *padding, *dilation, *x.stride(), *d.stride())
        geometry = (ctypes.c_int64 * len(sizes))(*sizes)
        status: int = functions.kernel_gradients(_address(x), _address(d), _address(out), geometry)
        return status

    if threads > 1:
        with ThreadPoolExecutor(threads) as pool:
            failed = any(pool.map(treat, range(threads)))
    else:
        failed = bool(threads and treat(0))
    if failed:
        raise MemoryError("no memory for the padded images of a convolution")
    return result


def normal_pairs(
    functions: ctypes.CDLL, words: Tensor, fine: Tensor, scale: float, pairs: Tensor, lengths: Tensor
) -> None:
    """Write pairs [2, n] of normal numbers and their lengths [n] in float64, made from the bits of a piece.

    Args:
        words: [3, n] int32, the high and low 31 bits of U and the high 32 bits of the angle.
        fine: [n] int32, the low 32 bits of the angle.
    """
    n = ctypes.c_int64(len(fine))
    bits = [_address(row) for row in (*words, fine)]
    functions.normal_pairs(n, *bits, ctypes.c_double(scale), *(_address(row) for row in (*pairs, lengths)))


def noisy_sum(
    functions: ctypes.CDLL,
    draws: Sequence[tuple[Tensor, Tensor]],
    scales: Sequence[float],
    grid: float,
    place: int,
    parts: Sequence[Tensor],
    results: Sequence[Tensor],
) -> None:
    """Write ``grid * round(noise + part / grid)`` for the normal numbers of a piece, without keeping them.

    Args:
        draws: words and fine, as for ``normal_pairs``, of each draw that the noise is the sum of; only the low 31 bits
            of U are used. scales: of the draws.
        place: the coordinate, of all parts one after another, to which the first number belongs; the first numbers of
            all pairs come before the second ones.
        parts, results: float32, each together in memory; coordinates behind their end are left out.
    """
    ends = (ctypes.c_int64 * len(parts))(*itertools.accumulate(part.numel() for part in parts))
    values, sums = ((ctypes.c_void_p * len(parts))(*(each.data_ptr() for each in group)) for group in (parts, results))
    rows = [row.data_ptr() for words, fine in draws for row in (*words, fine)]
    bits, factors = (ctypes.c_void_p * len(rows))(*rows), (ctypes.c_double * len(draws))(*scales)
    sizes = (ctypes.c_int64(len(draws[0][1])), ctypes.c_int64(len(draws)))
    numbers = (bits, factors, ctypes.c_double(grid), ctypes.c_int64(place))
    functions.noisy_sum(*sizes, *numbers, ends, ctypes.c_int64(len(parts)), values, sums)


def _address(tensor: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(tensor.data_ptr())


def _agrees(functions: ctypes.CDLL) -> bool:
    """Return whether the functions agree with torch on made-up numbers, whatever the caller's autocast and types."""
    with torch.device("cpu"), torch.autocast("cpu", enabled=False), torch.no_grad():
        return _agree_on_pairs(functions) and _agree_on_gradients(functions)


def _agree_on_pairs(functions: ctypes.CDLL) -> bool:
    generator, largest = torch.Generator().manual_seed(0), 2**31 - 1
    words = torch.randint(-(2**31), 2**31, (4, 4096), dtype=torch.int32, generator=generator)
    words[:2] &= largest
    words[:, :4] = torch.tensor([[0, 0, 0, 0], [largest, largest, -1, -1], [1, 0, 2**30, 0], [0, 1, -(2**31), 2**29]]).T
    numbers = torch.empty(3, words.shape[1], dtype=torch.float64)
    normal_pairs(functions, words[:3], words[3], 1.0, numbers[:2], numbers[2])
    high, low, turn, fine = words.double()
    length = (((high + (low + 0.5) * 2.0**-31) * 2.0**-31).log() * -2).sqrt()
    angle = (turn + fine * 2.0**-32) * (math.pi * 2.0**-31)
    wanted = torch.stack([length * angle.cos(), length * angle.sin(), length])
    accurate = bool(((numbers - wanted).abs() <= MAX_ERROR * (1 + length)).all())
    grid, value = 2.0**-20, torch.linspace(-3.0, 3.0, 8000, dtype=torch.float32)
    parts = (value[:3000], value[3000:3001], value[3001:])
    sums = torch.empty_like(value)
    draws = [(words[:3], words[3]), (words[:3].flip(1).contiguous(), words[3])]
    results = (sums[:3000], sums[3000:3001], sums[3001:])
    noisy_sum(functions, draws, (1 / grid, -0.5 / grid), grid, 0, parts, results)
    noise = torch.zeros(8192, dtype=torch.float64)
    for (high, fine), scale in zip(draws, (1 / grid, -0.5 / grid), strict=True):
        normal_pairs(functions, high, fine, scale, numbers[:2], numbers[2])
        noise += numbers[:2].reshape(-1)
    rounded = ((noise[:8000] + value / grid).round() * grid).float()
    return accurate and torch.equal(sums, rounded)


def _agree_on_gradients(functions: ctypes.CDLL) -> bool:
    generator, agree = torch.Generator().manual_seed(0), True
    cases = (
        ((3, 5, 12, 11), (3, 9, 13, 3), (2, 3), (1, 3), (1, 2)),
        ((2, 8, 13, 13), (2, 16, 13, 13), (3, 3), (1, 1), (1, 1)),
    )
    for inputs, outputs, kernel, stride, dilation in cases:
        h, delta = (torch.randn(shape, dtype=torch.float32, generator=generator) for shape in (inputs, outputs))
        grads = kernel_gradients(functions, h, delta, kernel, stride, (1, 1), dilation)
        windows = F.unfold(h.double(), kernel, dilation, (1, 1), stride)
        wanted = (
            (delta.flatten(2).double() @ windows.transpose(1, 2)).view(*outputs[:2], inputs[1], *kernel).movedim(2, -1)
        )
        agree = agree and torch.allclose(grads.double(), wanted, rtol=1e-4, atol=1e-4)
    return agree
