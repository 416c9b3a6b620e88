"""Observations from files and generators; every fault names the flag."""

from __future__ import annotations

import numpy as np
import pytest

import wpriv
from wpriv.accounting.history import observed
from wpriv.cli.main import main
from wpriv.core.pair_distances import of_gradients
from wpriv.errors import MissingResource, UsageError

GRADIENTS = np.random.default_rng(3).normal(size=(2, 6, 4))


def test_distances_gradients_and_csv_are_read_alike(tmp_path):
    wanted = of_gradients(GRADIENTS)
    np.savez(tmp_path / "g.npz", gradients=GRADIENTS)
    np.savez(tmp_path / "d.npz", distances=wanted.distances, coordinates=4)
    rows = [[t, *row] for t in (0, 1) for row in GRADIENTS[t]]
    np.savetxt(tmp_path / "g.csv", rows, delimiter=",", header="step,a,b,c,d", comments="")
    pairs = [[t, d] for t in (0, 1) for d in wanted.distances[t]]
    np.savetxt(tmp_path / "d.csv", pairs, delimiter=",", header="step,distance", comments="")
    for name in ("g.npz", "d.npz", "g.csv", "d.csv"):
        found = observed(str(tmp_path / name))
        assert found.distances == pytest.approx(wanted.distances, rel=1e-12)
        assert found.origin == str(tmp_path / name)
        assert found.coordinates == (0 if name == "d.csv" else 4)
    assert observed(wanted) is wanted
    assert observed(list(wanted.distances[0])).steps == 1


def test_a_changed_file_is_read_again(tmp_path):
    path = tmp_path / "d.csv"
    path.write_text("distance\n1\n2\n3\n")
    first = observed(str(path))
    path.write_text("distance\n1\n2\n3\n4\n")
    assert observed(str(path)).distances.shape[1] == first.distances.shape[1] + 1


def test_generators_draw_the_same_again_and_fresh_records_at_every_step():
    text = "weibull:shape=0.5,records=8,coordinates=20,steps=3,quantile=0.5,seed=7"
    a = observed(text)
    rng = np.random.default_rng(7)
    g = rng.weibull(0.5, (8, 20))
    assert a.distances.shape == (3, 28)
    assert a.distances[0, 0] == pytest.approx(np.linalg.norm(g[0] - g[1]))
    assert a.unit[0] == pytest.approx(np.quantile(np.linalg.norm(g, axis=1), 0.5))
    assert not np.allclose(a.distances[0], a.distances[1])
    clipped = observed(f"{text},clip=1")
    assert np.all(clipped.distances.max(axis=1) <= 2 * clipped.unit * (1 + 1e-12))
    assert observed("normal:shape=2,records=3,coordinates=5").distances.shape == (1, 3)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("weibul:shape=1", "did you mean 'weibull'"),
        ("weibull:shap=1", "did you mean 'shape'"),
        ("weibull:shape=0", "wanted shape > 0"),
        ("weibull:clip=1", "quantile to clip to"),
        ("weibull:records=100000,coordinates=10000", "draws more than"),
        ("weibull:shape=x", "must be a number"),
    ],
)
def test_a_faulty_generator_is_refused(text, told):
    with pytest.raises(UsageError, match=told):
        observed(text)


def test_faulty_files_are_refused_with_the_flag(tmp_path):
    with pytest.raises(MissingResource, match=r"none.npz"):
        observed(str(tmp_path / "none.npz"))
    for name, content, told in (
        ("a.npz", b"no archive", "not an .npz file"),
        ("b.csv", b"", "observed"),
        ("c.csv", b"distance\nx\n", "not a CSV of numbers"),
        ("d.csv", b"distance\n-1\n", "at least 0"),
        ("g.csv", b"distance\n1\n2,3\n", "line 3: "),
        ("h.csv", b"distance,distance\n1,2\n", "'distance'"),
        ("e.csv", b"step,distance\n0,1\n0,2\n1,1\n", "same number of rows"),
        ("f.csv", b"a,b\n1,2\n", "two records"),
        ("i.csv", b"id,distance\n100,0.1\n200,0.2\n", "found id, distance"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=told) as caught:
            observed(str(tmp_path / name))
        assert "observed" in str(caught.value)
    np.savez(tmp_path / "both.npz", distances=[1.0], gradients=[[1.0]])
    np.savez(tmp_path / "words.npz", distances=["a"])
    np.savez(tmp_path / "objects.npz", distances=np.array([None, {}], dtype=object))
    for name, told in (
        ("both", "'distances' or an array 'gradients'"),
        ("words", "must hold numbers"),
        ("objects", "plain arrays"),
    ):
        with pytest.raises(UsageError, match=told):
            observed(str(tmp_path / f"{name}.npz"))
    with pytest.raises(UsageError, match="found float"):
        observed(1.0)


def test_a_recipe_reads_observations_beside_itself_wherever_it_is_run(tmp_path, monkeypatch):
    folder = tmp_path / "recipes"
    folder.mkdir()
    np.savez(folder / "seen.npz", gradients=GRADIENTS)
    (folder / "own.yaml").write_text(
        "kind: compare\nsource: own\ndelta: 1e-5\naccountants: [wdp, bdp]\n"
        "process: [{mech: gauss, sigma: 1, n: 2, sampling: poisson, rate: 0.1, observed: seen.npz}]\n"
    )
    monkeypatch.chdir(tmp_path)
    rows = wpriv.compare("recipes/own.yaml", out=tmp_path / "out").rows
    assert [row["notion"] for row in rows] == ["wdp", "bdp"]
    assert main(["recipe", "cp", str(folder / "own.yaml"), str(tmp_path / "copy.yaml")]) == 0
    assert (tmp_path / "seen.npz").is_file()


def test_the_library_takes_arrays():
    found = wpriv.budget("gauss", sigma=1.0, observed=[1.0, 2.0, 3.0], delta=1e-5, accountant="bdp:order=2")
    assert found.notion == "bdp"


def test_the_command_line_sweeps_observed_steps(capsys):
    job = "--mech gauss --sigma 1 --delta 1e-5 --accountant wdp:variant=code --accountant bdp:order=2"
    seen = "weibull:shape=0.5,records=6,coordinates=4,steps=3,quantile=0.5"
    assert main(["compare", *job.split(), "--observed", seen, "--sweep", "n=1,2,3"]) == 0
    shown = capsys.readouterr()
    rows = [line.split() for line in shown.out.splitlines() if line[:1].isdigit()]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert float(rows[0][1]) < float(rows[1][1]) < float(rows[2][1])
    assert "different units" in shown.err
    assert main(["compare", *job.split(), "--observed", seen, "--sweep", "n=4"]) == 2
    assert "4 steps need as many observed; found 3" in capsys.readouterr().err
