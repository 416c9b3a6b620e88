"""Noise is normal, its bits are those of AES-256, and only its key repeats it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats

from wpriv.errors import UsageError
from wpriv.training.noise.noise_stream import PAIRS, Noise

KEY = bytes(range(32))
# AES-256 of the blocks 0, 1 and 2 under a key of zeros: McGrew and Viega, The Galois/Counter Mode of Operation, test
# cases 13 and 14
ZERO_KEY_BLOCKS = (
    "dc95c078a2408989ad48a21492842087",
    "530f8afbc74536b9a963b4f1c4cb738b",
    "cea7403d4d606b6e074ec5d3baf39d18",
)


def test_the_stream_is_aes_256_in_counter_mode_and_its_first_blocks_are_the_next_key():
    own = Noise(bytes(32))
    found = own._words(own._next_stream(), 4).numpy().tobytes().hex()
    assert found == ZERO_KEY_BLOCKS[2]
    assert own.state() == "".join(ZERO_KEY_BLOCKS[:2])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_normal_of_the_scale_asked_for_to_the_far_tails(dtype):
    found = Noise(KEY).normal(1_000_001, 2.5, dtype)
    assert (found.shape, found.dtype) == ((1_000_001,), dtype)
    drawn = found.double().numpy() / 2.5
    # oracle: Kolmogorov-Smirnov at 1e-4, and counts beyond 3 and 4 within 4 standard errors of the normal law's
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    for limit in (3, 4):
        for side in (drawn > limit, drawn < -limit):
            wanted = len(drawn) * stats.norm.sf(limit)
            assert abs(side.sum() - wanted) < 4 * math.sqrt(wanted)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_of_one_draw_and_of_two_are_independent(dtype):
    own, n = Noise(KEY), 2 * PAIRS  # a whole piece
    rows = np.concatenate([own.normal(2 * n, 1.0, dtype).numpy().reshape(4, -1) for _ in range(2)])
    off = np.corrcoef(rows) - np.eye(8)
    assert np.abs(off).max() < 5 / math.sqrt(rows.shape[1])
    assert np.abs(np.corrcoef(rows**2) - np.eye(8)).max() < 5 / math.sqrt(rows.shape[1])  # a pair shares its radius
    assert len(np.unique(rows[:, :1000])) > 7990  # pieces are not the same; single numbers of float32 may be


@pytest.mark.parametrize("word", [-(2**31), -1, 0, 1, 2**31 - 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_word_makes_a_finite_number_and_the_rarest_one_the_farthest(word, dtype, monkeypatch):
    own = Noise(KEY)
    monkeypatch.setattr(own, "_words", lambda _, count, name="words": torch.full((count,), word, dtype=torch.int32))
    found = own.normal(2, 1.0, dtype)
    assert found.isfinite().all()
    if word in (0, -(2**31)):
        assert float(found.norm()) == pytest.approx(math.sqrt(2 * 63 * math.log(2)), rel=1e-6)  # a share of 2^-63


def test_keys_that_differ_in_any_bit_give_other_noise_and_the_same_key_the_same():
    drawn = [Noise((2**bit).to_bytes(32, "little")).normal(1000) for bit in (0, 31, 32, 63, 64, 127, 255)]
    assert np.abs(np.corrcoef(torch.stack(drawn).numpy()) - np.eye(len(drawn))).max() < 5 / math.sqrt(1000)
    assert torch.equal(drawn[0], Noise((1).to_bytes(32, "little")).normal(1000))
    assert not torch.equal(Noise().normal(10), Noise().normal(10))


def test_from_a_state_come_the_draws_after_it_and_never_those_before():
    own = Noise(KEY)
    before = own.normal(1000)
    state = own.state()
    wanted = [own.normal(7), own.uniform(5), own.normal(3, 1.0, torch.float64)]
    other = Noise(bytes(32))
    other.restore(state)
    first = other.normal(7)
    assert all(
        torch.equal(a, b)
        for a, b in zip(wanted, [first, other.uniform(5), other.normal(3, 1.0, torch.float64)], strict=True)
    )
    assert state != KEY.hex()
    assert not np.isin(first.numpy(), before.numpy()).any()


def test_what_was_drawn_stays_when_more_is_drawn():
    own = Noise(KEY)
    first = own.normal(100)
    kept = first.clone()
    own.normal(100)
    own.uniform(100)
    assert torch.equal(first, kept)


def test_uniform_numbers_are_uniform():
    found = Noise(KEY).uniform(500_001).double().numpy()
    assert stats.kstest(found, "uniform").pvalue > 1e-4
    assert 0 <= found.min() <= found.max() <= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_any_number_of_them_can_be_had(count, dtype):
    assert len(Noise(KEY).normal(count, 1.0, dtype)) == len(Noise(KEY).uniform(count)) == count


@pytest.mark.parametrize("state", ["", "00", "zz" * 32, KEY.hex() + "00", KEY.hex().upper()[:-1] + "G"])
def test_what_is_no_key_is_refused(state):
    with pytest.raises(UsageError, match="32 bytes"):
        Noise(KEY).restore(state)
    with pytest.raises(UsageError, match="found 5"):
        Noise(b"short")


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_draws_the_same_noise_up_to_rounding():
    here, there = Noise(KEY), Noise(KEY, "cuda")
    for _ in range(3):  # one draw must not overwrite what another still copies
        assert torch.allclose(here.normal(3 * PAIRS), there.normal(3 * PAIRS).cpu(), atol=1e-5)
    assert torch.allclose(here.uniform(1000), there.uniform(1000).cpu())
