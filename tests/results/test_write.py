"""A results directory belongs to one recipe, is resumed cell by cell, and is written in one piece."""

from __future__ import annotations

import json
import subprocess

import pytest

from wpriv.config import recipe, yaml_document
from wpriv.errors import UsageError
from wpriv.results import storage

TEXT = 'kind: compare\nsource: "a test"\nprocess: [{mech: gauss, sigma: 1}]\naccountants: [gdp]\neps: 1\n'


def made(text: str = TEXT):
    return recipe.check(yaml_document.parse(text, "r.yaml"))


def test_another_recipe_is_never_overwritten_silently(tmp_path):
    storage.claim(tmp_path, made())
    storage.claim(tmp_path, made(TEXT + "title: a change of words\n"))
    with pytest.raises(UsageError, match="`out`"):
        storage.claim(tmp_path, made(TEXT.replace("sigma: 1", "sigma: 2")))
    storage.claim(tmp_path, made(TEXT.replace("sigma: 1", "sigma: 2")), fresh=True)


def test_files_that_are_not_ours_are_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    for fresh in (False, True):
        with pytest.raises(UsageError, match="`out`"):
            storage.claim(tmp_path, made(), fresh=fresh)


def test_a_directory_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="`out`"):
        storage.claim(tmp_path / "file" / "deeper", made())


def test_the_resolved_recipe_reads_back_as_the_same_run(tmp_path):
    panels = TEXT + "panels:\n  - {name: a, eps: 1e-300}\n  - {name: b, delta: 1e-5}\n"
    storage.claim(tmp_path, made(panels))
    assert recipe.check(yaml_document.read(tmp_path / storage.RECIPE)).data == made(panels).data


def test_a_line_cut_short_costs_only_its_own_cell(tmp_path):
    storage.keep(tmp_path, "a", [{"delta": 1e-300, "epsilon": float("inf")}])
    with (tmp_path / storage.CELLS).open("a") as file:
        file.write('{"key": "b", "rows": [{"del')
    storage.keep(tmp_path, "c", [{"delta": 0.5}])
    assert storage.finished(tmp_path) == {"a": [{"delta": 1e-300, "epsilon": float("inf")}], "c": [{"delta": 0.5}]}


def test_provenance_names_versions_device_and_the_absence_of_a_seed(tmp_path):
    storage.results(tmp_path, [{"a": 1}], {"cells": 1})
    told = json.loads((tmp_path / storage.PROVENANCE).read_text())
    assert {"wpriv", "python", "numpy", "scipy", "platform", "device", "seed", "git_commit", "command", "cells"} <= set(
        told
    )
    assert (tmp_path / storage.TABLE).read_text() == "a\n1\n"


def test_columns_that_say_nothing_are_left_out():
    assert storage.columns([{"a": 1, "b": None, "c": "", "process": [1]}, {"d": 0}]) == ["a", "d"]


def test_an_installed_program_does_not_state_the_commit_of_a_repository_around_it(tmp_path, monkeypatch):
    def git(*words):
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", "-C", str(tmp_path), *identity, *words], check=True, capture_output=True)

    module = tmp_path / "site-packages" / "wpriv" / "run" / "results" / "write.py"
    module.parent.mkdir(parents=True)
    module.write_text("")
    (tmp_path / ".gitignore").write_text("site-packages\n")
    git("init")
    git("add", ".gitignore")
    git("commit", "-m", "a project that uses wpriv")
    monkeypatch.setattr(storage, "__file__", str(module))
    ask = storage.commit.__wrapped__  # the tests ask once, see tests/waits.py
    assert ask() is None
    git("add", "--force", str(module))
    assert len(ask().removesuffix("+")) == 40
