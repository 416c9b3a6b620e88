"""Read web pages in tests: whether tags are balanced, and what a browser writes to its console."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

VOID = {"meta", "link", "br", "img", "input", "hr", "wbr"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# messages of the browser on the machine it runs on; those of a page begin by the file and the line of its console
CONSOLE = re.compile(r":CONSOLE[:(]")


class Balanced(HTMLParser):
    """Fails on a tag that is closed twice or never."""

    def __init__(self):
        super().__init__()
        self.open, self.ids = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [value for name, value in attributes if name == "id"]

    def handle_startendtag(self, tag, attributes):
        self.ids += [value for name, value in attributes if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def browser() -> str | None:
    """Return a browser without a window, or None where none is installed."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def console(page: Path, folder: Path) -> tuple[str, list[str]]:
    """Open a page; return its content as the browser has parsed it, and what was written to the console."""
    found = browser()
    assert found is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--user-data-dir={folder}"]
    result = subprocess.run([found, *options, "--dump-dom", page.as_uri()], capture_output=True, text=True, check=True)
    return result.stdout, [line for line in result.stderr.splitlines() if CONSOLE.search(line)]
