"""Changed copies of records: which changes there are, how often, and on what they depend."""

from __future__ import annotations

import collections

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from wpriv.config.train_parts import Augment
from wpriv.errors import UsageError
from wpriv.training.engine.augmentation import Augmentation

MODES = {"zeros": "constant", "reflect": "reflect", "edge": "replicate"}


def every_change(image: torch.Tensor, plan: Augment) -> list[torch.Tensor]:
    """All images that a plan may make of one, by torch's own padding and flips."""
    flips = {"none": [()], "horizontal": [(), (2,)], "vertical": [(), (1,)], "both": [(), (1,), (2,), (1, 2)]}
    _, height, width = image.shape
    changes = []
    for dimensions in flips[plan.flip]:
        padded = functional.pad(image[None], (plan.shift,) * 4, mode=MODES[plan.fill])[0]
        for row in range(2 * plan.shift + 1):
            for column in range(2 * plan.shift + 1):
                crop = padded[:, row : row + height, column : column + width]
                changes.append(crop.flip(dimensions) if dimensions else crop)
    return changes


@pytest.mark.parametrize("flip", ["none", "horizontal", "vertical", "both"])
@pytest.mark.parametrize("fill", ["zeros", "reflect", "edge"])
def test_copies_are_the_flips_and_crops_of_the_padded_image_each_equally_often(flip, fill):
    plan = Augment(copies=60, flip=flip, shift=1, fill=fill)
    image = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))
    possible = every_change(image, plan)
    counts: collections.Counter[int] = collections.Counter()
    for step in range(20):
        copies = Augmentation(plan, key=5, step=step).copies(image[None], np.array([3]))[0]
        for copy in copies:
            (place,) = [number for number, other in enumerate(possible) if torch.equal(copy, other)]
            counts[place] += 1
    # 1200 draws of up to 36 kinds: chi-squared below its quantile at 1 - 1e-4, by scipy
    from scipy import stats

    expected = 1200 / len(possible)
    chi = sum((counts[place] - expected) ** 2 / expected for place in range(len(possible)))
    assert chi < stats.chi2.ppf(1 - 1e-4, len(possible) - 1)


@given(st.integers(0, 2**63 - 1), st.integers(0, 10**6), st.permutations(range(6)))
@settings(max_examples=30)
def test_a_copy_depends_on_key_step_and_place_and_not_on_the_rest_of_the_batch(key, step, order):
    plan = Augment(copies=3, flip="both", shift=2)
    images = torch.arange(6 * 36, dtype=torch.float32).view(6, 1, 6, 6)
    places = np.array([0, 7, 100, 101, 40000, 59999])
    whole = Augmentation(plan, key, step).copies(images, places)
    few = list(order)[:4]
    assert torch.equal(Augmentation(plan, key, step).copies(images[few], places[few]), whole[few])


def test_other_steps_places_copies_and_keys_have_other_changes():
    plan = Augment(copies=4, shift=7)
    draws = [
        Augmentation(plan, key, step).draws(np.arange(500), what)
        for key in (0, 1, 2**63 - 1)
        for step in (0, 1, 2)
        for what in range(4)
    ]
    assert len(np.unique(np.concatenate([numbers.ravel() for numbers in draws]))) == 3 * 3 * 4 * 500 * 4


def test_an_empty_batch_has_no_copies():
    copies = Augmentation(Augment(copies=4, shift=1)).copies(torch.zeros(0, 1, 5, 5), np.zeros(0, dtype=np.int64))
    assert copies.shape == (0, 4, 1, 5, 5)


@pytest.mark.parametrize(
    "images", [torch.zeros(2, 5), torch.zeros(2, 3, 3), torch.zeros(2, 1, 4, 4, dtype=torch.int64)]
)
def test_records_that_are_no_images_are_refused(images):
    with pytest.raises(UsageError, match="augment"):
        Augmentation(Augment(copies=2, shift=1)).copies(images, np.arange(2))


def test_a_shift_as_large_as_the_image_is_refused():
    with pytest.raises(UsageError, match="shift must be below the 4"):
        Augmentation(Augment(copies=2, shift=4)).copies(torch.zeros(1, 1, 9, 4), np.arange(1))
