"""The wording of errors with structure."""

import pickle

from wpriv.errors import UnknownName, UsageError


def test_unknown_name_shows_the_nearest_and_a_short_list_or_where_a_long_one_is():
    error = UnknownName("mechanism", "gaus", ["gauss", "laplace"])
    assert isinstance(error, UsageError)
    assert str(error) == "no mechanism called 'gaus'; did you mean 'gauss'? Known: gauss, laplace"
    many = ["gauss", *(f"plug-in-{k}" for k in range(9))]
    listed = "no mechanism called 'gaus'; did you mean 'gauss'? `wpriv list mechanisms` names all"
    assert str(UnknownName("mechanism", "gaus", many)) == listed
    assert str(UnknownName("column", "gaus", many)) == "no column called 'gaus'; did you mean 'gauss'?"


def test_unknown_name_names_place_and_owner():
    assert str(UnknownName("column", "zzz", [], place="a.csv")) == "a.csv: no column called 'zzz'. Known: none"
    assert str(UnknownName("parameter", "sigm", ["sigma"], owner="gauss")).startswith("gauss has no parameter 'sigm';")


def test_unknown_name_survives_pickling_between_processes():
    error = UnknownName("figure", "x" * 100, ["line"], hint=": it is a table.")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(error).endswith(f"called {'x' * 60!r}: it is a table.")


def test_a_place_stands_before_the_message_and_the_class_is_kept():
    error = UnknownName("column", "zz", ["a"], place="a.csv").at("entry 2")
    assert isinstance(error, UnknownName)
    assert str(error) == "entry 2: a.csv: no column called 'zz'. Known: a"
    assert str(UsageError("wrong").at("entry 2")) == "entry 2: wrong"
