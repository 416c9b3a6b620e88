"""The docstring examples of the transport functions are correct."""

from __future__ import annotations

import doctest

import pytest

from wpriv.transport import exact, line, sinkhorn, sliced


@pytest.mark.parametrize("module", [exact, line, sinkhorn, sliced], ids=lambda module: module.__name__)
def test_docstring_examples(module):
    results = doctest.testmod(module, extraglobs={"torch": __import__("torch")})
    assert results.attempted >= 1
    assert results.failed == 0
