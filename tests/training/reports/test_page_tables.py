"""Tables of web pages: names of columns in the cells for narrow screens, and columns with one value above the table."""

from __future__ import annotations

import re

import pytest

from wpriv.results.expectations import Verdict
from wpriv.training.reports import folder_page, render

STYLE = render.FOLDER / "page.css"


def test_each_cell_of_a_table_with_a_class_names_its_column_and_those_of_others_do_not():
    text = render.part("table", ["item", "a < b"], [["1", "2"], ["3", "4"]], {1}, "items")
    assert re.findall(r'data-label="([^"]+)"', text) == ["item", "a &lt; b"] * 2
    assert text.count('class="number"') == 3
    assert "data-label" not in render.part("table", ["item"], [["1"]])


def test_every_column_of_expected_numbers_that_the_style_sheet_names_is_one():
    named = set(re.findall(r'numbers td\[data-label="([^"]+)"\]', STYLE.read_text(encoding="utf-8")))
    assert len(named) >= 4
    text = folder_page.expected_table([expected_row(claim="exact")])
    assert (
        named
        <= set(re.findall(r'data-label="([^"]+)"', text))
        == set(re.findall(r"<th(?: class=\"number\")?>(.*?)</th>", text))
    )


def test_columns_with_one_value_stand_above_the_table_with_that_value():
    rows = [{"eps": 1.0, "mech": "gauss", "n": 1}, {"eps": 2.0, "mech": "gauss", "n": 1}]
    text = folder_page.numbers_behind(rows)
    assert "In all rows: mech gauss, n 1</p>" in text
    assert re.findall(r"<th>(.*?)</th>", text) == ["eps"]


def test_a_single_row_and_rows_that_are_all_alike_stay_tables():
    row = {"eps": 1.0, "mech": "gauss"}
    for rows in ([row], [row, row]):
        text = folder_page.numbers_behind(rows)
        assert "In all rows" not in text
        assert re.findall(r"<th>(.*?)</th>", text) == ["eps", "mech"]


def test_folded_expected_numbers_can_be_opened_by_the_style_sheet_for_paper():
    row = {"panel": "", "where": {"n": 1}, "column": "delta_lower", "kind": "reference", "expected": 1.0, "ours": 1.0}
    row |= {"difference": 0.0, "within": 0.1, "absolute": False, "ok": True, "held": True, "source": "by hand"}
    text = folder_page.expected_table([Verdict(**row)] * (folder_page.MOST_OPEN + 1))
    assert '<details class="expected">' in text
    assert "details.expected" in STYLE.read_text(encoding="utf-8")
    assert "delta_<wbr>lower" in text


def expected_row(**more):
    row = {"panel": "", "where": {"n": 1}, "column": "accuracy", "kind": "published", "expected": 0.5, "ours": 0.55}
    row |= {"difference": 0.1, "within": 0.1, "absolute": False, "ok": True, "held": True, "source": "Table 1"}
    return Verdict(**row | more)


@pytest.mark.parametrize(
    ("difference", "absolute", "shown"),
    [
        (0.1, False, "+10%"),
        (-0.19914, False, "-20%"),
        (1.234, False, "+123%"),
        (2.1e-5, False, "+0.0021%"),
        (8.6e-14, False, "0"),
        (0.0, False, "0"),
        (0.018, True, "+0.018"),
        (-0.02132, True, "-0.021"),
        (0.0, True, "0"),
        (None, False, ""),
        ("inf", False, "inf"),
    ],
)
def test_a_difference_is_in_percent_or_in_the_unit_of_an_absolute_tolerance(difference, absolute, shown):
    assert expected_row(difference=difference, absolute=absolute).difference_words == shown


def test_a_tolerance_has_the_unit_of_the_difference_beside_it():
    assert expected_row(within=0.02, absolute=True).within_words == "0.02"
    assert expected_row(within=0.002, absolute=False).within_words == "0.2%"


@pytest.mark.parametrize(
    ("mean", "deviation", "shown"),
    [
        (0.764823, 0.02512, "0.765 ± 0.025 (5 seeds)"),
        (0.751968, 0.0046, "0.7520 ± 0.0046 (5 seeds)"),
        (57.4665, 12.3, "57 ± 12 (5 seeds)"),
        (1.0, 0.0, "1 ± 0 (5 seeds)"),
        (None, None, ""),
        (0.7648234, None, "0.764823"),
    ],
)
def test_a_mean_has_the_decimals_of_its_deviation(mean, deviation, shown):
    assert expected_row(ours=mean, deviation=deviation, seeds=5).ours_words == shown


def test_a_bound_from_one_side_is_shown_as_one():
    assert expected_row().expected_words == "0.5"
    assert expected_row(side="at least").expected_words == "0.5 or more"
    assert "<td" in folder_page.expected_table([expected_row(side="at most")])
    assert "0.5 or less" in folder_page.expected_table([expected_row(side="at most")])


def test_ends_of_brackets_are_rounded_outwards_and_lower_bounds_down():
    row = {
        "certified_lower": 2.3456781,
        "certified_upper": 2.3456741,
        "epsilon_at_least": 1.2345671,
        "epsilon": 1.2345671,
    }
    cells = re.findall(r"<td>(.*?)</td>", folder_page.numbers_behind([row]))
    assert cells == ["2.34567", "2.34568", "1.23456", "1.23457"]


def test_a_long_table_in_short_has_both_ends_and_at_most_sixty_rows_in_their_order():
    for length in (0, 1, 59, 60, 61, 119, 121, 500):
        short = [row["n"] for row in folder_page.thinned([{"n": n} for n in range(length)])]
        assert len(short) == min(length, 60)
        assert short == sorted(set(short))
        assert not short or (short[0], short[-1]) == (0, length - 1)
