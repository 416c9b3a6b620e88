"""Options of accountants: name:key=value, typed by their defaults, swept like parameters."""

from __future__ import annotations

import json

import pytest

import wpriv
from wpriv.cli.main import main
from wpriv.core import registry
from wpriv.errors import UsageError


def test_options_are_read_in_the_type_of_their_defaults():
    module, found = registry.accountant("wdp:order=16, variant=code")
    assert module.__name__ == "wpriv.papers.accountants.wdp"
    assert found == {"order": 16.0, "variant": "code"}
    assert registry.accountant("pld")[1] == {}
    assert registry.options(module)["variant"] == "paper"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("wpd", "did you mean 'wdp'"),
        ("wdp:ordr=1", "did you mean 'order'"),
        ("wdp:order", "key=value"),
        ("wdp:order=", "key=value"),
        ("wdp:order=x", "must be a number"),
        ("wdp:order=nan", "finite"),
        ("pld:order=1", "It has none"),
    ],
)
def test_faulty_options_are_refused(text, told):
    with pytest.raises(UsageError, match=told):
        registry.accountant(text)


def test_an_option_is_swept_and_leaves_accountants_without_it_alone():
    sweep = {"over": "order", "values": [1, 2]}
    rows = wpriv.compare(
        process=[{"mech": "gauss", "sigma": 1}], accountants=["renyi", "gdp"], delta=1e-5, sweep=sweep
    ).rows
    by = {(row["accountant"], row["order"]): row["epsilon"] for row in rows}
    assert by["renyi", 1] == pytest.approx(0.5)
    assert by["renyi", 2] == pytest.approx(1.0)
    assert by["gdp", 1] == by["gdp", 2]


def test_a_recipe_with_a_faulty_option_tells_the_line(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(
        "kind: compare\nsource: own\ndelta: 1e-5\nprocess: [{mech: gauss, sigma: 1}]\naccountants: [pld, "
        "'wdp:ordr=2']\n"
    )
    with pytest.raises(UsageError, match=r"own.yaml:5:\d+: wdp has no option 'ordr'; did you mean 'order'"):
        wpriv.compare(path)


def test_every_table_of_several_notions_carries_the_note_on_units(capsys):
    job = "--mech gauss --sigma 1 --delta 1e-5 --accountant pld --accountant renyi --accountant wdp:variant=exact"
    for verb, mode in (
        ("budget", ""),
        ("budget", "--json"),
        ("budget", "--csv"),
        ("compare", ""),
        ("compare", "--json"),
        ("compare", "--csv"),
    ):
        assert main([verb, *job.split(), *mode.split()]) == 0
        shown = capsys.readouterr()
        assert "different units" in shown.err
        if mode == "--json":
            assert any("different units" in note for note in json.loads(shown.out)["notes"])
        if not mode:
            assert "[wdp]" in shown.out
            assert "[rdp]" in shown.out


def test_explain_says_in_five_lines_what_a_wdp_eps_is(capsys):
    assert (
        main(
            [
                "budget",
                "--mech",
                "gauss",
                "--sigma",
                "1",
                "--delta",
                "1e-5",
                "--accountant",
                "wdp:variant=exact",
                "--explain",
            ]
        )
        == 0
    )
    shown = capsys.readouterr().out
    lines = shown.partition("formula\n  ")[2].partition("\nsources\n")[0].replace("\n    ", " ").split("\n  ")
    assert len(lines) == 5
    for word in ("promises", "not how well", "implies", "unit of the output", "GROWS with the noise"):
        assert any(word in line for line in lines)
    assert "fixed in advance" in shown
    assert "chance of a right guess" in shown
