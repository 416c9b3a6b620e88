"""The page that proves certificates in a browser: built, run in node, and opened from disk in headless Chromium.

The build takes Pyodide from npm and python-flint from PyPI; where npm, a registry, node or chromedriver is not there,
the tests that need it are skipped and say so.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "browser"
# where Chromium decides the same certificates, node decides them at night
IN_NODE = pytest.mark.nightly if shutil.which("chromedriver") else pytest.mark.slow
VERDICT = "return document.getElementById('result').hidden ? '' : document.getElementById('result').dataset.verdict"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the built page."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    out = tmp_path_factory.mktemp("browser")
    command = [sys.executable, FOLDER / "build.py", "--out", out / "verify.html", "--parts", out / "parts"]
    env = {**os.environ, "npm_config_fetch_retries": "0", "PIP_RETRIES": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if re.search("(npm pack|pip download).* failed: ", done.stderr):
        pytest.skip(f"a package registry gave nothing: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    return out


class Browser:
    """A headless Chromium that is driven through chromedriver, by the protocol of WebDriver."""

    def __init__(self, profile: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL)
        self.address = f"http://127.0.0.1:{port}"
        for _ in range(6000):
            try:
                self.call("GET", "/status")
                break
            except OSError:
                time.sleep(0.1)
        # no name resolves: whatever the page asked from a network would fail
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND"]
        options = {"args": [*flags, f"--user-data-dir={profile}"]}
        capabilities = {"alwaysMatch": {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}}
        self.address += f"/session/{self.call('POST', '/session', capabilities=capabilities)['sessionId']}"

    def call(self, method: str, path: str, **data):
        body = json.dumps(data).encode() if method == "POST" else None
        request = urllib.request.Request(self.address + path, body, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)["value"]

    def run(self, script: str):
        return self.call("POST", "/execute/sync", script=script, args=[])

    def element(self, name: str) -> str:
        return next(iter(self.call("POST", "/element", using="css selector", value=f"#{name}").values()))

    def press(self, name: str) -> None:
        self.call("POST", f"/element/{self.element(name)}/click")

    def wait(self, script: str, wanted: set[str]) -> str:
        """Ask until a script returns one of some words, for ten minutes."""
        for _ in range(6000):
            answer = self.run(script)
            if answer in wanted:
                return answer
            time.sleep(0.1)
        raise AssertionError(f"after ten minutes: {answer!r}, {self.run('return document.body.innerText')[-900:]}")

    def text(self) -> str:
        return self.run("return document.getElementById('result').innerText")

    def close(self) -> None:
        self.call("DELETE", "")
        self.driver.terminate()
        self.driver.wait()


@pytest.fixture(scope="module")
def browser(built, tmp_path_factory):
    """Chromium on the page, once Python runs there."""
    if shutil.which("chromedriver") is None:
        pytest.skip("chromedriver is not installed (apt-get install chromium chromium-driver)")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    try:
        browser.call("POST", "/url", url=(built / "verify.html").as_uri())
        browser.wait("return document.getElementById('prove').disabled ? 'no' : 'yes'", {"yes"})
        yield browser
    finally:
        browser.close()


def outcome(browser: Browser) -> str:
    return browser.wait(VERDICT, {"proved", "refuted", "not proved", "malformed", "not covered", "error"})


CERTIFICATE = {
    "schema": "wpriv.certificate/1",
    "notion": "approximate-dp",
    "asked": "eps",
    "adjacency": "add-remove",
    "process": [{"mech": "gauss", "sigma": 3.0, "sensitivity": 1.0, "n": 10, "sampling": "none"}],
    "premises": [],
    "epsilon_lower": 4.6529,
    "epsilon_upper": 4.653,
    "delta_lower": 1e-5,
    "delta_upper": 1e-5,
}  # eps = 4.652985


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        ({}, "proved", "is proved."),
        ({"epsilon_upper": 4.6529}, "refuted", "the opposite of an end"),
        ({"epsilon_lower": 4.65299}, "refuted", "the opposite of an end"),
        ({"notion": "wdp"}, "malformed", "wanted notion to be 'approximate-dp'; found 'wdp'"),
        ({"process": [{"mech": "exponential"}]}, "not covered", "the verifier knows gauss, laplace"),
    ],
)
def test_the_words_of_the_page_are_those_of_the_outcome(change, verdict, words):
    prover = runpy.run_path(str(FOLDER / "prover.py"))
    stages: list[str] = []
    outcome = json.loads(prover["verdict"](json.dumps({**CERTIFICATE, **change}), stages.append))
    assert outcome["verdict"] == verdict
    assert words in outcome["conclusion"]
    if verdict in ("proved", "refuted"):
        assert stages == ["Reading the process", "Proving the upper end", "Proving the lower end"]
        assert outcome["process"] == ["gauss (sigma = 3.0, sensitivity = 1.0), n = 10", "add-remove neighbours"]


def test_the_page_is_one_file_below_25_megabytes_that_names_no_address(built):
    page = (built / "verify.html").read_bytes()
    assert 5e6 < len(page) < 25e6
    visible = b"".join(line for line in page.splitlines() if b"data-part" not in line)
    assert b"http://" not in visible
    assert b"https://" not in visible.replace(b"https://parts.invalid/", b"")


@IN_NODE
def test_the_verifier_decides_in_node_as_on_the_command_line(built):
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    certificates = [built / "parts" / name for name in ("sample.json", "false.json")]
    prove = ["node", FOLDER / "prove.mjs", built / "parts", *certificates]
    lines = subprocess.run(prove, capture_output=True, text=True, check=True).stdout.splitlines()
    for path, line, word in zip(certificates, lines, ("proved", "refuted"), strict=True):
        in_node = json.loads(line)
        verify = [sys.executable, "-m", "wpriv", "verify", path, "--json"]
        by_command = json.loads(subprocess.run(verify, capture_output=True, text=True, check=False).stdout)
        assert in_node["verdict"] == word
        assert in_node["premises"] == by_command["premises"]
        for end, row in zip(in_node["ends"], by_command["rows"], strict=True):
            assert end["verdict"] == row["verdict"]
            assert f"delta is {row['proven_side']} {row['proven']}" in end["finding"]


def test_the_sample_is_proved_in_chromium(browser):
    browser.press("sample")
    assert outcome(browser) == "proved"
    text = browser.text()
    assert text.startswith("Proved")
    assert "eps is at most 2.3007" in text
    assert "the sizes of the drawn batches stay secret" in text


def test_a_false_certificate_is_refuted_in_chromium(browser):
    browser.press("false")
    assert outcome(browser) == "refuted"


def test_a_file_is_proved_in_chromium(browser, tmp_path):
    path = tmp_path / "laplace.json"
    job = "budget --mech laplace --scale 20 --n 1000 --eps 3 --quiet --certificate"
    subprocess.run([sys.executable, "-m", "wpriv", *job.split(), str(path)], check=True, capture_output=True)
    browser.run("document.getElementById('result').hidden = true")  # a file is read later than it is given
    browser.call("POST", f"/element/{browser.element('file')}/value", text=str(path))
    assert outcome(browser) == "proved"
    assert "laplace (scale = 20.0, sensitivity = 1.0), n = 1000" in browser.text()


@pytest.mark.parametrize(("text", "word"), [("{", "malformed"), ("", "malformed")])
def test_what_is_no_certificate_is_said_to_be_none(browser, text, word):
    browser.run(f"document.getElementById('text').value = {json.dumps(text)}")
    browser.press("prove")
    assert outcome(browser) == word
    assert "Traceback" not in browser.text()


@pytest.mark.nightly  # Python is loaded a second time
def test_stop_starts_python_anew_and_a_certificate_given_meanwhile_is_proved(browser):
    browser.run("element('sample').click(); element('stop').click(); element('false').click()")
    assert outcome(browser) == "refuted"


def test_the_page_asked_for_nothing_and_reported_no_error(browser):
    logged = [entry["message"] for entry in browser.call("POST", "/se/log", type="browser")]
    assert logged == []
    loaded = browser.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [name for name in loaded if not name.startswith("blob:")] == []
