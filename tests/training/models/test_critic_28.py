"""The critic: its size, and that it judges each image by itself."""

from __future__ import annotations

import torch

from wpriv.core import registry


def test_it_has_the_documented_size_and_does_not_mix_images():
    torch.manual_seed(0)
    model = registry.load("models", "critic-28").build(registry.params("models", "critic-28", {}), (1, 28, 28), 1)
    # 64 filters of 16 and a bias; 128 of 64 x 16 and a bias; one number of 128 x 49 and a bias
    assert sum(p.numel() for p in model.parameters()) == 64 * 17 + 128 * 1025 + 6273
    x = torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(torch.cat([model(x[:1]), model(x[1:])]), model(x))
