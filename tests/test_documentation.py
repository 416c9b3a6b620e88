"""README.md and docs/: every command runs and prints what is shown, generated parts are up to date, names are there."""

from __future__ import annotations

import functools
import json
import math
import re
import runpy
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import wpriv.accounting.mechanisms
from tests import nightly
from tests.command_line import call_alone
from tests.documents import PAGES, README, blocks, run_page
from tests.points import ROOT
from wpriv.cli.main import main
from wpriv.cli.parsing import COMMANDS
from wpriv.core import registry
from wpriv.errors import CheckFailed, MissingResource, Unsupported, UsageError
from wpriv.training import list_data

DOCS = ROOT / "docs"
RUNNABLE = [page for page in PAGES if any(block.runs for block in blocks(page))]
# of the first shard, the pages that take five to nine seconds
LONG = {DOCS / "guides" / f"{name}.md" for name in ("audit", "decide-claims", "labelled-images")}
LONG.add(DOCS / "tutorials" / "local-reports.md")
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
ALL_TEXT = "\n".join(TEXTS.values())
ROOMS = ("mechanisms", "accountants", "tables", "figures", "tasks", "data", "models")
PLUGINS = [name for room in ROOMS for name in registry.names(room)]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def data_sets() -> frozenset[str]:
    """Return the names of the data sets that this machine has, and of the other libraries that pages call."""
    found = {str(row["name"]) for row in list_data.listing(None) if row["status"] == "found"}
    return frozenset(found | {name for name in ("opacus", "dp_accounting", "sqlglot") if find_spec(name) is not None})


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(*case.values, marks=pytest.mark.nightly) if LONG.intersection(case.values) else case
        for case in nightly.sharded(RUNNABLE, 9)
    ],
    ids=relative,
)
def test_commands_run_and_print_what_the_page_shows(page, capfd, tmp_path, monkeypatch, data_sets):
    monkeypatch.chdir(tmp_path)
    ran = run_page(page, tmp_path, capfd, data_sets)
    assert ran or any(block.needs for block in blocks(page))


def test_enough_pages_and_commands_are_found_to_mean_something():
    commands = [
        line for page in PAGES for block in blocks(page) if block.language == "console" for line, _ in block.commands()
    ]
    assert len(RUNNABLE) >= 20
    assert sum("wpriv " in line for line in commands) >= 100


@pytest.mark.parametrize("page", [p for p in PAGES if any(b.language == "bash" for b in blocks(p))], ids=relative)
def test_flags_of_scripts_that_are_not_run_exist(page):
    for block in blocks(page):
        if block.language != "bash":
            continue
        for verb, rest in re.findall(r"\bwpriv ([a-z]+)((?:[^\n\\|;&]|\\\n)*)", block.text):
            assert verb in COMMANDS, verb
            flags = set(re.findall(r"(?<!\S)(--[a-z-]+)", rest))
            # the flags of `wpriv recipe refresh` are those of the second word
            known = flags_of(verb, *rest.split()[: verb == "recipe"])
            assert flags <= known, f"{verb}: {flags - known}"


@functools.cache
def flags_of(*verb: str) -> set[str]:
    code, text, _ = call_alone([*verb, "--help"])
    assert code == 0
    return set(re.findall(r"--[a-z-]+", text))


def test_the_readme_has_at_most_150_lines():
    assert len(TEXTS[README].splitlines()) <= 150


@pytest.mark.parametrize("name", [*COMMANDS, *PLUGINS])
def test_every_name_that_users_type_is_documented(name):
    assert f"`{name}`" in ALL_TEXT or f"wpriv {name} " in ALL_TEXT


# which accountants answer which mechanism: also in the kept outputs of `wpriv list mechanisms NAME`
@pytest.mark.parametrize("is_slow", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_generated_parts_are_up_to_date(is_slow):
    script = runpy.run_path(str(DOCS / "generate.py"))
    kept = {name: text for page in TEXTS.values() for _, name, text, _ in script["PART"].findall(page)}
    made = {name: part for name, part in script["parts"]().items() if (name == "accountants") == is_slow}
    stale = [name for name, part in made.items() if name in kept and part() != kept[name]]
    if (json.loads(script["SCHEMA"].read_text(encoding="utf-8"))) != script["json_schema"]():
        stale.append("the schema")
    assert not stale, f"run python docs/generate.py; it changes {', '.join(stale)}"


def test_every_generated_part_stands_on_a_page():
    script = runpy.run_path(str(DOCS / "generate.py"))
    shown = {name for text in TEXTS.values() for _, name, _, _ in script["PART"].findall(text)}
    # records and networks that a Python program gives have no parameters of their own
    assert set(script["parts"]()) - shown == {"data-given", "model-given"}


def test_the_python_reference_has_every_public_name():
    text = TEXTS[DOCS / "reference" / "python-api.md"]
    assert not [name for name in wpriv.__all__ if not re.search(rf"^\.\. auto\w+:: wpriv\.{name}$", text, re.M)]


def test_exit_codes_of_the_reference_are_those_of_the_errors():
    text = (DOCS / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    for error in (CheckFailed, UsageError, Unsupported, MissingResource):
        assert re.search(rf"^\| {error.exit_code} \|", text, re.M)


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page):
    text = re.sub(r"^(`{3,}).*?^\1 *$", "", TEXTS[page], flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), target


def test_the_new_mechanism_is_one_file_that_every_command_finds(tmp_path, monkeypatch, capsys):
    sources = [
        b for b in blocks(DOCS / "development" / "add-a-plugin.md") if "Mechanism)" in b.text and b.language == "python"
    ]
    (tmp_path / "kary_response.py").write_text(sources[0].text)
    monkeypatch.setattr(wpriv.accounting.mechanisms, "__path__", [*wpriv.accounting.mechanisms.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "wpriv.accounting.mechanisms.kary_response", raising=False)
    assert main(shlex.split("budget --mech kary-response --param eps0=0.1 --param answers=16 --eps 0 --quiet")) == 0
    # the total variation of the answers to two different questions: (e^eps0 - 1) / (e^eps0 + k - 1)
    assert float(capsys.readouterr().out) == pytest.approx(math.expm1(0.1) / (math.exp(0.1) + 15), rel=1e-5)
    assert main(shlex.split("calibrate --mech kary-response --param eps0=0.1 --eps 1 --delta 1e-6 --quiet")) == 0
    sys.modules.pop("wpriv.accounting.mechanisms.kary_response", None)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Return the folder of the built site, which is built without a warning."""
    pytest.importorskip("furo", reason="needs the extra docs")
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(folder)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.nightly  # `nox -s docs` builds the site too, without a warning
@pytest.mark.slow
def test_the_site_loads_nothing_from_a_network(site):
    pages = [page.read_text(encoding="utf-8") for page in site.rglob("*.html")]
    assert len(pages) >= 80
    for page in pages:
        assert not re.findall(r"""<(?:script|img|iframe)[^>]*\ssrc=["'](?:https?:)?//""", page)
        assert not re.findall(r"""<link[^>]*rel="stylesheet"[^>]*href="(?:https?:)?//""", page)
    assert sum(page.count("<math") for page in pages) >= 2000
    assert re.findall(r"url\(\"([^\"]*)\"\)", (site / "_static" / "wpriv.css").read_text()) == ["stix-two-math.woff2"]


SEARCHED = """
Gaussian mechanism, Laplace mechanism, exponential mechanism, counting query, histogram, SQL, regulator,
auditor, user-level, client-level, federated learning, central model, local model, random allocation,
balls in bins, sampling without replacement, privacy budget, privacy loss, composition, noise multiplier,
epsilon, delta, sensitivity, zCDP, f-DP, GDP, RDP, matrix mechanism, partition selection,
bounded differential privacy, census, sparse vector, privacy unit, membership inference attack, Opacus,
DP-FTRL
"""


@pytest.mark.nightly
@pytest.mark.slow
def test_the_standard_words_are_found_by_the_search_of_the_site(site):
    """As searchtools.js does: a page is found that has the stems of all words, in its text or in a title."""
    from sphinx.search.en import SearchEnglish

    text = (site / "searchindex.js").read_text(encoding="utf-8")
    index = json.loads(text[text.index("{") : text.rindex("}") + 1])
    language = SearchEnglish({})

    def pages_with(word: str) -> set[int]:
        hits = [index[kind].get(language.stem(word.lower()), []) for kind in ("terms", "titleterms")]
        return {page for hit in hits for page in ([hit] if isinstance(hit, int) else hit)}

    for query in re.split(r",\s", SEARCHED.strip()):
        words = [word for word in re.findall(r"\w+", query) if word not in language.stopwords]
        found = set.intersection(*map(pages_with, words))
        assert found, query
        assert index["docnames"].index("glossary") in found or len(found) >= 2, query
