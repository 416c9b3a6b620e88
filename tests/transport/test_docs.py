"""The examples in the docstrings of the transport functions are run."""

from __future__ import annotations

import doctest

import pytest

from wpriv.transport import exact, gaussian, line, sliced


@pytest.mark.parametrize("module", [exact, gaussian, line, sliced], ids=lambda module: module.__name__)
def test_the_examples_print_what_they_show(module):
    found = doctest.testmod(module, extraglobs={"torch": __import__("torch")})
    assert found.attempted >= 1
    assert found.failed == 0
