"""How the runner of the documentation compares what a page shows with what a command prints."""

from __future__ import annotations

import pytest

from tests.documents import check_shown


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("eps = 1.13388 at delta\n...\nend", "eps = 1.13389 at delta\nmore\nend"),
        ("a\n...\nb", "a\n\nb"),
        ("x 0.89...\n...\nlast", "x 0.8965   7\nlast line\nlast"),
        ("noted in words...", "noted in words. And more"),
        ("...", ""),
        ("1.703...e-11 2", "1.7034e-11 2"),
    ],
)
def test_what_agrees_but_for_gaps_and_the_last_digit_passes(shown, printed):
    check_shown(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("eps = 1.13388", "eps = 1.13390"),
        ("first\n...\nlast", "first\nmiddle\nlast\nafter"),
        ("b\n...\na", "a\n b\n"),
        ("n = 12 ...", "n = 13 steps"),
    ],
)
def test_another_number_order_or_end_fails(shown, printed):
    with pytest.raises(AssertionError, match="the page shows"):
        check_shown(shown, printed)


def test_many_gaps_in_a_long_output_that_differs_are_found_at_once():
    printed = "\n".join(f"step {i} loss {i / 7:.6f}" for i in range(2000))
    # an expression that tries all combinations of the gaps would not end
    with pytest.raises(AssertionError):
        check_shown("step 1 " + "\n...\nstep 2 ... loss 0.2857...\n..." * 12 + "\nabsent", printed)
