"""Python files of the user's own: what their text shows, and what happens when they are run."""

from __future__ import annotations

import pytest

from wpriv.errors import MissingResource, UsageError
from wpriv.files import python_file

NET = """
import math

LIMIT = 3

class Net:
    def __init__(self, classes, width=64):
        self.classes, self.width = classes, width

class Child(Net):
    pass

def read(limit, *, seed=0):
    return limit + seed

def open_to_all(**options):
    return options

def broken():
    return math.sqrt(-1)

def calling(function):
    return function()

if LIMIT > 5:
    raise RuntimeError
"""


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.py"
    path.write_text(NET)
    return path


def test_definitions_are_read_without_running_the_file(tmp_path):
    path = tmp_path / "loud.py"
    path.write_text("raise SystemExit(3)\n" + NET)
    names = python_file.definitions(path)
    assert names["Net"] == python_file.Definition(("classes", "width"))
    assert names["read"] == python_file.Definition(("limit", "seed"))
    assert names["Child"].parameters is None
    assert names["open_to_all"].open
    assert {"math", "LIMIT"} <= set(names)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("Nett", {}, ["'Nett'", "'Net'"]),
        ("Net", {"widht": 3}, ["'widht'", "'width'"]),
        ("read", {"x": 1}, ["'x'", "limit, seed"]),
        ("broken", {"x": 1}, ["'x'", "none"]),
    ],
)
def test_a_name_or_parameter_that_the_file_lacks_is_named_with_the_nearest(net, name, given, words):
    message = python_file.fault(net, name, given, ("classes",))
    assert message is not None
    assert all(word in message for word in words)


def test_a_call_that_fits_the_text_has_no_fault(net):
    assert python_file.fault(net, "Net", {"width": 3}, ("classes",)) is None
    assert python_file.fault(net, "Child", {"anything": 3}) is None
    assert python_file.fault(net, "open_to_all", {"anything": 3}) is None


def test_supplied_arguments_are_passed_only_where_there_is_a_parameter_for_them(net):
    module = python_file.call(net, "Net", {"width": 8}, {"shape": (1, 2), "classes": 10})
    assert (module.classes, module.width) == (10, 8)
    assert python_file.call(net, "read", {"limit": 5}, {"classes": 10}) == 5


def test_an_error_of_the_file_is_reported_with_its_line(net, tmp_path):
    line = NET[: NET.index("math.sqrt")].count("\n") + 1
    with pytest.raises(UsageError, match=f"net.py:{line}"):
        python_file.call(net, "broken", {}, {})
    failing = tmp_path / "failing.py"
    failing.write_text("x = 1\ny = x / 0\ndef f(): pass\n")
    with pytest.raises(UsageError, match=r"failing\.py:2"):
        python_file.call(failing, "f", {}, {})


def test_a_file_is_run_again_after_it_changed(tmp_path):
    path = tmp_path / "one.py"
    for number in (1, 2):
        path.write_text(f"def f():\n    return {number}\n")
        assert python_file.call(path, "f", {}, {}) == number


def test_files_beside_it_can_be_imported(tmp_path):
    (tmp_path / "beside_helper_module.py").write_text("VALUE = 7\n")
    (tmp_path / "main_file.py").write_text(
        "import beside_helper_module\ndef f():\n    return beside_helper_module.VALUE\n"
    )
    assert python_file.call(tmp_path / "main_file.py", "f", {}, {}) == 7


@pytest.mark.parametrize("content", [b"def f(:\n", b"\xff\xfe\x00", b"x = '\n"])
def test_a_file_that_is_no_python_is_refused(tmp_path, content):
    path = tmp_path / "bad.py"
    path.write_bytes(content)
    with pytest.raises((UsageError, MissingResource), match=r"bad\.py"):
        python_file.definitions(path)


def test_a_missing_file_is_a_missing_resource(tmp_path):
    with pytest.raises(MissingResource, match=r"none\.py"):
        python_file.digest(tmp_path / "none.py")


def test_the_digest_is_that_of_the_text(net):
    first = python_file.digest(net)
    net.write_text(NET + "\n")
    assert len(first) == 16
    assert python_file.digest(net) != first


def raised(function):
    try:
        function()
    except (ValueError, KeyError, MissingResource) as error:
        return python_file.failure(error)
    raise AssertionError("wanted an error")


def test_an_error_that_the_file_raised_or_a_library_below_it_is_its_failure(net):
    assert "net.py" in raised(python_file.function(net, "broken"))
    words = raised(lambda: python_file.function(net, "calling")(lambda: {}[3]))
    assert words.endswith("calling failed: KeyError: 3")


def test_an_error_of_this_program_below_a_file_and_one_without_a_file_are_no_failures_of_it(net):
    assert raised(lambda: python_file.function(net, "calling")(lambda: python_file.source("\0" + 3 * "x"))) is None
    assert raised(lambda: {}[3]) is None
