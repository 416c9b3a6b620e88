"""Sound calls and recipes, and ways to break them: material of test_broken_calls.py."""

from __future__ import annotations

import random
import shlex

CALLS = [
    "budget --mech gauss --sigma 4 --delta 1e-5",
    "budget --mech gauss --sigma 4 --n 100 --eps 1 --accountant gdp",
    "budget --mech gauss --sigma 4 --sampling poisson --rate 0.01 --n 100 --delta 1e-5 --accountant rdp",
    "budget --mech gauss --sigma 4 --sampling fixed --batch 10 --records 100 --epochs 2 --delta 1e-5 --accountant rdp",
    "budget --mech laplace --scale 20 --n 10 --eps 3 --accountant basic --json",
    "budget --mech randomized-response --param eps0=0.5 --n 10 --delta 1e-5 --accountant kov --csv",
    "budget --mech gauss --sigma 4 --sensitivity 2 --adjacency add-remove --delta 1e-5 --max-eps 9 --quiet",
    "budget --mech gauss --sigma 4 --delta 1e-5 --accountant gdp --accountant zcdp --explain",
    "calibrate --mech gauss --eps 1 --delta 1e-5 --n 10 --accountant gdp",
    "calibrate --mech laplace --eps 1 --delta 1e-5 --n 10 --accountant basic --tol 1e-2",
    "compare --mech gauss --sigma 4 --delta 1e-5 --n 5 --accountant gdp",
    "compare --mech gauss --sigma 4 --eps 1 --sweep n=1,2 --accountant gdp",
    "compare --mech gauss --sigma 4 --sampling poisson --rate 0.1 --n 3 --delta 1e-5 --why",
    "privatize --data x.npy --mech local-gauss --radius 4 --eps 3 --delta 1e-4 --out new.npz",
    "privatize --data x.npy --mech local-laplace --radius 4 --eps 3 --out new.npz --dry-run",
    "train quick/digits --dry-run --out new",
    "train quick/digits --set privacy.eps=1 --dry-run --out new",
    "recipe show quick/digits",
    "recipe cp plc/fig5-gauss new",
    "recipe check plc/fig5-gauss",
    "data show table --param file=people.csv --param target=income",
    "plot nowhere --format png",
]
NO_NUMBERS = [
    "abc",
    "",
    " ",
    "1,5",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "1/0",
    "0/0",
    "9^9999",
    "0x10",
    "--",
    "1e",
    "½",
    "1 2",
    "None",
    "\0",
    "\ud800",
]
OUT_OF_RANGE = {
    "--sigma": ["0", "-1", "-1e-300"],
    "--scale": ["0", "-3"],
    "--sensitivity": ["0", "-1"],
    "--n": ["0", "-1", "1.5", "2^41", "1e300"],
    "--epochs": ["0", "-1", "1e300"],
    "--rate": ["0", "-0.1", "1.0001", "7"],
    "--batch": ["0", "-1", "101", "1.5"],
    "--records": ["0", "-1", "0.5"],
    "--delta": ["1", "-1e-5", "2"],  # 0 asks for pure differential privacy
    "--eps": ["-1", "-1e-9"],
    "--tol": ["0", "-1", "0.9", "1e-12"],
    "--radius": ["0", "-1"],
}
NAMES = {
    "--mech": ["gaus", "pld", "", "..", "gauss/../laplace", "_mixture", "__init__", "ğauss", "gauss:sigma=1"],
    "--accountant": [
        "pdl",
        "gauss",
        "",
        "_x",
        "rdp:order",
        "wdp:order=x",
        "gdp:order=3",
        "all,pld",
        "wdp:variant=",
        "pld:",
    ],
    "--sampling": ["poison", "", "shufle", "0", "poisson,fixed"],
    "--adjacency": ["sideways", "", "0", "add"],
    "--sweep": [
        "n",
        "n=",
        "=1",
        "nope=1",
        "n=1,x",
        "n=linspace:1",
        "n=linspace:1,2,1e9",
        "n=nope:1,2,3",
        "n=1e9999",
        "sigma=0",
        "mech=gauss",
    ],
    "--param": ["", "=", "a=b", "sigma", "n=3", "eps0", "eps0=", "eps0=x", "eps0=-1", "sigma=4"],
    "--set": [
        "",
        "=",
        "a=b",
        "privacy.eps",
        "privacy.eps=",
        "privacy.eps=x",
        "privacy..eps=1",
        "a.b.c=1",
        "privacy=7",
        "epochs=[",
        "seed=-1",
    ],
    "--format": ["", "gif", ",", "png;pdf"],
    "--data": ["nope", "", "mnist:nope", "nowhere.npy", ".", "x.npy:test", "\0", "table"],
}
WORDS = ["stray", "--nope", "--nope=1", "-x", "--", "-", "--json=1", "\0", "\ud800", "--sigma=", "é" * 300, "a" * 5000]


def broken_flags(rng: random.Random) -> list[str]:
    """A sound call with something broken in its flags for certain."""
    words = shlex.split(rng.choice(CALLS))
    valued = [i for i, word in enumerate(words[:-1]) if word.startswith("--") and not words[i + 1].startswith("--")]
    numbers = [i for i in valued if words[i] in OUT_OF_RANGE or words[i] == "--max-eps"]
    named = [i for i in valued if words[i] in NAMES]
    ranged = [i for i in numbers if words[i] in OUT_OF_RANGE]
    needed = [i for i in valued if words[i] in ("--mech", "--sigma", "--scale", "--radius", "--rate", "--data")]
    if "--sigma" in words and words[0] in ("budget", "compare"):  # sigma alone is that of the Gaussian mechanism
        needed = [i for i in needed if words[i] != "--mech"]
    single = [i for i in valued if words[i] not in ("--accountant", "--param", "--set", "--sweep")]
    places = {
        "number": numbers,
        "range": ranged,
        "name": named,
        "missing": needed,
        "cut": valued,
        "twice": single,
        "command": [0],
        "stray": [0],
    }
    kind = rng.choice([kind for kind, where in places.items() if where])
    place = rng.choice(places[kind])
    if kind == "number":
        words[place + 1] = rng.choice(NO_NUMBERS)
    elif kind == "range":
        words[place + 1] = rng.choice(OUT_OF_RANGE[words[place]])
    elif kind == "name":
        words[place + 1] = rng.choice(NAMES[words[place]])
    elif kind == "missing":
        if words[0] == "calibrate" or (words[0] == "compare" and words[place] == "--rate"):
            place = words.index("--mech")
        del words[place : place + 2]
    elif kind == "cut":
        words = words[: place + 1]
    elif kind == "twice":
        words += words[place : place + 2]
    elif kind == "command":
        words[0] = rng.choice([words[0][:-1], words[0] + "X", "", "\0", "../budget", "help", "main"])
    else:
        words.insert(rng.randrange(1, len(words) + 1), rng.choice(WORDS))
        words += ["stray"] if {"-", "--"} & set(words) else []
    return words


BUDGET = """kind: budget
source: "a paper"
process:
  - {mech: gauss, sigma: 4, sampling: poisson, rate: 0.01, n: 100}
  - {mech: laplace, scale: 20}
adjacency: add-remove
accountants: [rdp]
delta: 1e-5
"""
CALIBRATE = """kind: calibrate
process: [{mech: gauss, n: 10}]
accountants: [gdp]
eps: 1
delta: 1e-5
"""
COMPARE = """kind: compare
source: "a paper"
process: [{mech: gauss, sigma: 4}]
accountants: [gdp, zcdp]
eps: 1
sweep: {over: n, values: {geomspace: [1, 100, 3]}}
figure: delta-over-n
limits: {x: [1, 100]}
expect: [{where: {n: 1, accountant: gdp}, delta: 2.92e-6, within: 0.5, source: "a paper"}]
quick: {sweep: {over: n, values: [1]}}
"""
PANELS = """kind: compare
source: "a paper"
eps: 1
accountants: [gdp]
panels:
  - name: left
    process: [{mech: gauss, sigma: 4}]
  - name: right
    cases: {one: [{mech: gauss, sigma: 3}], two: [{mech: gauss, sigma: 2}]}
"""
TABLE = """kind: compare
source: "a paper"
table: class
process: [{mech: randomized-response, eps0: 1}]
"""
PRIVATIZE = """kind: privatize
source: "a paper"
data: {file: x.npy, limit: 3}
mech: local-gauss
radius: 4
eps: 3
delta: 1e-4
"""
RECIPES_BY_VERB = [
    (["budget"], BUDGET),
    (["calibrate"], CALIBRATE),
    (["compare", "--out", "compared-{}"], COMPARE),
    (["compare", "--out", "compared-{}"], PANELS),
    (["compare", "--out", "compared-{}"], TABLE),
    (["privatize", "--dry-run"], PRIVATIZE),
    (["train", "--dry-run", "--out", "trained-{}"], ""),  # quick/digits
    (["recipe", "check"], BUDGET),
    (["recipe", "show"], COMPARE),
]
VALUES = [
    "nope", "''", "-1", "0", "1e400", ".nan", "inf", "[]", "{}", "[[[]]]", "{a: b}", "true", "null", "2^2000",
    "1" * 50, "'\\0'", '"\\0"', "&a 1", "*a", "!!python/object/apply:os.system [ls]", "!x y", "2024-01-01",
    "0x1F", "1_0", "é", "[1, 2", "{a", "'", '"', "|", "- - -", "{linspace: [1, 2, 3]}", "{powers: [2, 0, 99]}",
    "[nan]", "../../x", "~", "yes", "1e-400", "@", "%", "`", "? a",
]  # fmt: skip
KEYS = ["nope", "Kind", "''", "process", "eps", "delta", "sigma", "quick", "1", "é", "<<", "sweep", "panels"]


def broken_recipe(text: str, rng: random.Random) -> tuple[bytes, bool]:
    """The bytes of a recipe with something broken, and whether that is so for certain."""
    lines = text.splitlines()
    kind = rng.choice(
        ["value", "value", "value", "key", "twice", "bytes", "encoding", "cut", "nest", "second", "tab", "drop", "mix"]
    )
    if kind == "value":
        places = [i for i, char in enumerate(text) if char == ":" and text[i + 1 : i + 2] == " "]
        place = rng.choice(places) + 2
        end = min(
            text.find(stop, place) if text.find(stop, place) >= 0 else len(text) for stop in (",", "}", "]", "\n")
        )
        return (text[:place] + rng.choice(VALUES) + text[end:]).encode(errors="replace"), False
    if kind == "key":
        return (text + f"{rng.choice(KEYS[:4])}x: 1\n").encode(), True
    if kind == "twice":
        return (text + next(line for line in lines if line.startswith("kind")) + "\n").encode(), True
    if kind == "bytes":
        return damaged(text.encode(), rng), False
    if kind == "encoding":
        return (f"# ü\n{text}").encode(rng.choice(["utf-16", "latin-1", "utf-32"])), True
    if kind == "nest":
        return (text + "x: " + "[" * rng.choice([20, 500, 100_000])).encode(), True
    if kind == "second":
        return f"{text}---\n{text}".encode(), True
    if kind == "tab":
        return f"{text}\tx: 1\n".encode(), True
    if kind == "drop":
        return (
            "\n".join(
                line for line in lines if not line.startswith(("kind", "process", "mech", "task", "panels", "table"))
            )
            + "\n"
        ).encode(), True
    if kind == "mix":
        return text.replace(
            lines[0],
            rng.choice(["kind: nope", "kind: [budget]", "kind: 7", "kind: ", "kinds: budget", "- kind: budget"]),
        ).encode(), True
    return text[: rng.randrange(1, len(text) // 3)].encode(), False


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Bytes that are changed, removed, added or cut off somewhere."""
    content = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 8])):
        place = rng.randrange(len(content)) if content else 0
        how = rng.choice(["flip", "drop", "add", "cut", "zero", "swap"])
        if how == "flip" and content:
            content[place] ^= 1 << rng.randrange(8)
        elif how == "drop":
            del content[place : place + rng.choice([1, 4, 100])]
        elif how == "add":
            content[place:place] = rng.choice(
                [b"\xff", b"\0", b'"', b",", b"nan", b"-", b"\n", b"9" * 400, b"[" * 3000, b"\r", b"e999"]
            )
        elif how == "cut":
            del content[place:]
        elif how == "zero":
            content[place : place + 8] = bytes(len(content[place : place + 8]))
        else:
            content[place : place + 40] = reversed(content[place : place + 40])
    return bytes(content)
