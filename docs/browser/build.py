"""Build the page that proves certificates in a browser: one HTML file, which needs no network.

``python docs/browser/build.py`` writes ``verify.html`` beside the pages of the built site. Pyodide comes from npm and
python-flint, compiled for it, from PyPI, by the clients ``npm`` and ``pip``. The folder of parts keeps what was
downloaded for the next build, and is what ``prove.mjs`` runs in node.
"""

from __future__ import annotations

import argparse
import base64
import gzip
import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
WPRIV = HERE.parents[1] / "wpriv"
PYODIDE, FLINT = "314.0.7", "0.9.0"  # Python 3.14; both are of the ABI below
ABI = ("--python-version", "3.14", "--abi", "cp314", "--platform", "pyemscripten_2026_0_wasm32")
RUNTIME = ("pyodide.js", "pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
EMBEDDED = ("pyodide.js", "pyodide.asm.js", *RUNTIME[-2:], "lock.json", "flint.whl", "verifier.zip")
VERIFIER = ("__init__.py", "_version.py", "errors.py", "hints.py", "verify/*.py")
JOB = "budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 65536 --delta 1e-4 --quiet --certificate"


def run(*command: str, cwd: Path) -> None:
    """Run a client of a package registry.

    Raises:
        SystemExit: it is not installed, or it failed; with its last lines.
    """
    if shutil.which(command[0]) is None:
        sys.exit(f"build.py needs {command[0]}, which is not installed")
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"build.py: {' '.join(command)} failed: {done.stderr.strip()[-600:]}")


def download(parts: Path) -> None:
    """Fill a folder with the runtime of Python and with python-flint, unless it has them."""
    marker = parts / "versions"
    if marker.exists() and marker.read_text() == f"{PYODIDE} {FLINT}":
        return
    parts.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run("npm", "pack", "--loglevel=error", f"pyodide@{PYODIDE}", cwd=folder)
        with tarfile.open(folder / f"pyodide-{PYODIDE}.tgz") as archive:
            for name in (*RUNTIME, "pyodide-lock.json"):
                (parts / name).write_bytes(archive.extractfile(f"package/{name}").read())  # type: ignore[union-attr]
        (parts / "pyodide.asm.js").write_text(as_script((parts / "pyodide.asm.mjs").read_text()))
        lock = json.loads((parts / "pyodide-lock.json").read_text())
        (parts / "pyodide-lock.json").unlink()
        (parts / "lock.json").write_text(json.dumps({"info": lock["info"], "packages": {}}))
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", *ABI)
        run(*pip, "--dest", str(folder), f"python-flint=={FLINT}", cwd=folder)
        (wheel,) = folder.glob("python_flint-*.whl")
        (parts / "flint.whl").write_bytes(without_tests(wheel))
    marker.write_text(f"{PYODIDE} {FLINT}")


def as_script(module: str) -> str:
    """Pyodide's module as a script, which a worker can load in a page that was opened from disk."""
    export = "export default _createPyodideModule"
    assert module.count("export default") == module.count(export) == 1
    module = module.replace("import.meta.url", '"https://parts.invalid/"')
    return module.replace(export, ";globalThis._createPyodideModule=_createPyodideModule")


def without_tests(wheel: Path) -> bytes:
    """A wheel without its tests and stubs."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            if not name.startswith("flint/test/") and not name.endswith(".pyi"):
                new.writestr(name, old.read(name))
    return buffer.getvalue()


def verifier() -> bytes:
    """A zip file of the verifier and of ``prover.py``; its bytes depend on the sources alone."""
    files = {f"wpriv/{path.relative_to(WPRIV)}": path for pattern in VERIFIER for path in sorted(WPRIV.glob(pattern))}
    files["prover.py"] = HERE / "prover.py"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, path in files.items():
            archive.writestr(zipfile.ZipInfo(name), path.read_bytes())
    return buffer.getvalue()


def samples(folder: Path) -> tuple[str, str]:
    """Write the certificate of README's job, and one whose upper end is a thousandth too small; return their texts."""
    true, false = folder / "sample.json", folder / "false.json"
    subprocess.run([sys.executable, "-m", "wpriv", *JOB.split(), str(true)], check=True, capture_output=True)
    data = json.loads(true.read_text())
    ends = {"epsilon_lower": data["epsilon_lower"] * 0.99, "epsilon_upper": data["epsilon_upper"] * 0.999}
    true.write_text(json.dumps(data, indent=1))
    false.write_text(json.dumps({**data, **ends}, indent=1))
    return true.read_text(), false.read_text()


def page(parts: Path) -> str:
    """The page with everything in it."""
    sys.path.insert(0, str(WPRIV.parent))
    from wpriv._version import __version__

    code = (parts / "verifier.zip").read_bytes()
    scripts = []
    for name in EMBEDDED:
        data = base64.b64encode(gzip.compress((parts / name).read_bytes(), 9, mtime=0)).decode()
        scripts.append(f'<script type="text/plain" data-part="{name}">{data}</script>')
    good, wrong = samples(parts)
    values = {
        "VERSION": __version__,
        "DIGEST": hashlib.sha256(code).hexdigest(),
        "PYODIDE": PYODIDE,
        "FLINT": FLINT,
        "PARTS": "\n".join(scripts),
        "WORKER": (HERE / "worker.js").read_text(),
        "SAMPLE": good,
        "FALSE": wrong,
    }
    text = (HERE / "page.html").read_text()
    for name, value in values.items():
        assert "</script" not in value or name == "PARTS", name
        text = text.replace(f"@@{name}@@", value)
    return text


def main() -> None:
    """Build the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    built = HERE.parent / "_build"
    parser.add_argument("--out", type=Path, default=built / "html" / "verify.html", metavar="FILE")
    parser.add_argument("--parts", type=Path, default=built / "browser", metavar="DIR")
    arguments = parser.parse_args()
    parts, target = arguments.parts.resolve(), arguments.out.resolve()
    download(parts)
    (parts / "verifier.zip").write_bytes(verifier())
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page(parts), encoding="utf-8")
    digest = hashlib.sha256((parts / "verifier.zip").read_bytes()).hexdigest()
    print(f"{target}: {target.stat().st_size / 1e6:.1f} MB; SHA-256 of the verifier {digest}")


if __name__ == "__main__":
    main()
