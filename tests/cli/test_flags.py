"""Errors speak of arguments, in backticks; the command line prints the flags of the command instead."""

from __future__ import annotations

import pytest

from wpriv.cli.flags import as_flags
from wpriv.cli.main import main

BUDGET = ("--tol", "--sampling", "--data-root", "--fresh", "--param")


@pytest.mark.parametrize(
    ("message", "printed"),
    [
        ("Raise `tol`, or use rdp", "Raise --tol, or use rdp"),
        ("Use `sampling='fixed'`", "Use --sampling fixed"),
        ("give `data_root`, or `fresh=True`", "give --data-root, or --fresh"),
        ("wgrad needs `clip=...`", "wgrad needs --param clip=..."),
        ("the key `clip`", "the key `clip`"),
        ("Run `wpriv recipe ls`", "Run `wpriv recipe ls`"),
    ],
)
def test_as_flags_writes_arguments_as_they_are_typed(message, printed):
    assert as_flags(message, BUDGET) == printed


def test_as_flags_leaves_arguments_that_the_command_lacks():
    assert as_flags("Raise `tol`, or set `clip=1`", ("--out",)) == "Raise `tol`, or set `clip=1`"


@pytest.mark.parametrize(
    ("line", "code", "flag"),
    [
        (
            "budget --mech laplace --scale 1 --sampling poisson --rate 0.1 --adjacency replace-one --delta 1e-5",
            3,
            "--adjacency add-remove",
        ),
        ("budget --mech pld --delta 1e-5", 2, "--accountant pld"),
        ("budget --mech gauss --sigma 1 --delta 1e-5 --accountant bdp", 3, "--observed"),
    ],
)
def test_errors_of_the_core_are_printed_with_flags(capsys, line, code, flag):
    assert main(line.split()) == code
    message = capsys.readouterr().err
    assert flag in message
    assert "`" not in message


def test_as_flags_names_the_command_of_the_flags_that_continue_a_training():
    assert as_flags("or begin again with `fresh=True`", ("--history",)) == "or begin again with --fresh of wpriv train"
