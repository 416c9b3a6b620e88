"""wpriv ledger"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from wpriv.cli import flags, output
from wpriv.cli.flags import Text
from wpriv.cli.parsing import Command, Group, argument, option, switch
from wpriv.errors import UsageError

if TYPE_CHECKING:
    from wpriv.ledger.reading import Account, Status
    from wpriv.ledger.service import Ledger, Receipt

SCHEMA = "wpriv.ledger-answer/1"
COMMANDS = "init, spend, reserve, begin, done, cancel, limit, check, status, plan, head, export, import, migrate, serve"
Texts = list[str] | None
URL = argument("URL", "sqlite:///b.db, or postgresql://user@host/name.")
WORDS = argument("STEPS|RECIPE", "What is released, as budget reads it: gauss sigma=100 n=10; or a recipe.")
RELEASE = argument("RELEASE", "Its number, or its key.")
KEY = option("ID", "A name for this release; given again, nothing is spent again.")
SCOPE = option("SCOPE", "Where it reads: sales, or sales:region=north.")
ACTOR = option("NAME", "Who does it, kept with the entry.")
REASON = option("TEXT", "What for, kept with the entry.")
EPS = option("X", "Limit: eps of (eps, delta)-DP, in nats.")
DELTA = option("X", "Limit: delta of (eps, delta)-DP.")
RHO = option("X", "Limit: rho of zCDP.")
MU = option("X", "Limit: mu of Gaussian DP.")
ADJACENCY = option("KIND", "Neighbouring relation (default add-remove).")

app = typer.Typer(cls=Group, add_completion=False, rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def top(ctx: typer.Context) -> None:
    """Keep the privacy budget of an organisation: releases spend from a limit, whatever came before, or are refused.

    wpriv ledger init sqlite:///b.db --eps 1 --delta 1e-6

    wpriv ledger spend sqlite:///b.db "gauss sigma=100 n=10" --key july-report

    wpriv ledger status sqlite:///b.db

    Exit codes: 0 spent; 1 refused, or the ledger is broken; 2 usage.
    """
    if ctx.invoked_subcommand is None:
        raise UsageError(f"no ledger command given. Known: {COMMANDS}. Try wpriv ledger --help")


@app.command(cls=Command)
def init(
    url: str = URL,
    eps: Text = EPS,
    delta: Text = DELTA,
    rho: Text = RHO,
    mu: Text = MU,
    limit: Texts = option("LIMIT", "A further limit, kept too: eps=3,delta=1e-9; repeatable."),
    ceiling: Text = option("LIMIT", "What is promised, to which the limit may rise: eps=3,delta=1e-6."),
    rule: Text = option("RULE", "residue (default), rdp, gauss, basic or union."),
    kappa: Text = option("X", "Of residue: charge to A per unit of T."),
    leaks: Text = option("X", "A: the part of delta for heavy tails and infinite losses."),
    plan: Text = option("STEPS", "Releases that are fixed now, in words."),
    adjacency: Text = ADJACENCY,
    group: Text = option("M", "Records of one person (default 1)."),
    unit: Text = option("TEXT", "What one record stands for, in words."),
    scope: Texts = option("SCOPE", "A scope: sales, or sales/orders:eps=1,delta=1e-6; repeatable."),
    partition: Texts = option("PARTS", "Parts of a scope: sales:region=north,south;k=2;fixed; repeatable."),
    actor: Text = ACTOR,
    as_json: bool = flags.JSON,
) -> None:
    """Make a ledger; what it promises, its rule and its neighbours are fixed from then on.

    wpriv ledger init sqlite:///b.db --eps 1 --delta 1e-6

    wpriv ledger init sqlite:///gauss.db --eps 1 --delta 1e-6 --rule gauss

    wpriv ledger init sqlite:///parts.db --eps 1 --delta 1e-6 --partition "all:region=north,south"
    """
    about = _about(
        **flags.numbers(eps=eps, delta=delta, rho=rho, mu=mu, kappa=kappa, leaks=leaks), ceiling=ceiling, rule=rule,
        plan=plan, adjacency=adjacency, group=group, unit=unit, actor=actor, limits=limit, scopes=scope,
        partitions=partition,
    )  # fmt: skip
    with _service().create(url, **about) as ledger:
        status = ledger.status()
        facts = [*(("promise", promise) for promise in status.promises), *_limits(status), *_facts(status.accounts)]
        line = f"a ledger at {ledger.store.url}, rule {status.rule}"
        output.emit_answer(as_json, {"state": "made", **status.as_dict()}, line, facts, SCHEMA)


@app.command(cls=Command)
def spend(
    url: str = URL,
    words: list[str] = WORDS,
    key: Text = KEY,
    scope: Text = SCOPE,
    actor: Text = ACTOR,
    reason: Text = REASON,
    planned: bool = switch("--planned", "It is part of the plan declared at the start, and is paid for."),
    dry_run: bool = switch("--dry-run", "Only tell, by the exit code, whether it fits."),
    as_json: bool = flags.JSON,
) -> None:
    """Spend a release: it is charged and on disk before any record is read, or it is refused.

    wpriv ledger spend sqlite:///b.db "gauss sigma=100 n=10" --key july-report

    wpriv ledger spend sqlite:///b.db "laplace scale=20" --scope all:region=north
    """
    about = _about(scope=scope, actor=actor, reason=reason, planned=planned, dry_run=dry_run)
    with _service()(url) as ledger:
        _print(ledger.spend(" ".join(words), key=key, **about), as_json)


@app.command(cls=Command)
def reserve(
    url: str = URL,
    words: list[str] = WORDS,
    key: Text = KEY,
    expires: Text = option("SECONDS", "Until it has to begin (default 3600)."),
    scope: Text = SCOPE,
    actor: Text = ACTOR,
    reason: Text = REASON,
    as_json: bool = flags.JSON,
) -> None:
    """Reserve a release, to begin later; until then it may be cancelled.

    wpriv ledger reserve sqlite:///b.db "laplace scale=20" --key august-report
    """
    about = _about(scope=scope, actor=actor, reason=reason, **flags.numbers(expires=expires))
    with _service()(url) as ledger:
        _print(ledger.reserve(" ".join(words), key=key, **about), as_json)


@app.command(cls=Command)
def begin(
    url: str = URL,
    release: str = RELEASE,
    nonce: Text = option("TEXT", "A secret of the holder, who may ask again with it after a lost reply."),
    as_json: bool = flags.JSON,
) -> None:
    """Begin a reserved release, once: only now may its records be read, and only if this succeeds.

    wpriv ledger begin sqlite:///b.db august-report
    """
    with _service()(url) as ledger:
        _print(ledger.begin(release, nonce), as_json)


@app.command(cls=Command)
def done(
    url: str = URL,
    release: str = RELEASE,
    lost: bool = switch("--lost", "The computation failed; it stays charged."),
    as_json: bool = flags.JSON,
) -> None:
    """Note that the answer of a release has left.

    wpriv ledger done sqlite:///b.db august-report
    """
    with _service()(url) as ledger:
        _print(ledger.done(release, lost=lost), as_json)


@app.command(cls=Command)
def cancel(url: str = URL, release: str = RELEASE, as_json: bool = flags.JSON) -> None:
    """Return the charge of a reservation that has not begun.

    wpriv ledger cancel sqlite:///b.db august-report
    """
    with _service()(url) as ledger:
        _print(ledger.cancel(release), as_json)


@app.command("limit", cls=Command)
def limit_(
    url: str = URL,
    eps: Text = EPS,
    delta: Text = DELTA,
    rho: Text = RHO,
    mu: Text = MU,
    scope: Text = option("SCOPE", "Whose limit it is (default all)."),
    of: Text = option("LIMIT", "Which of several limits, by its promise: eps=3,delta=1e-9."),
    actor: Text = ACTOR,
    reason: Text = REASON,
    as_json: bool = flags.JSON,
) -> None:
    """Lower the limit up to which is spent, or raise it to its ceiling; what is promised stays as it was.

    wpriv ledger limit sqlite:///b.db --eps 0.5 --delta 1e-6
    """
    service = _service()
    from wpriv.ledger.charter import limit_of
    from wpriv.ledger.filters import Limit

    about = _about(scope=scope, actor=actor, reason=reason, of=None if of is None else limit_of(of))
    with service(url) as ledger:
        now = Limit(**flags.numbers(eps=eps, delta=delta, rho=rho, mu=mu))
        before = ledger.limit(now, **about)
        status = ledger.status(fixed=False)
    facts = [*(("promise", promise) for promise in status.promises), *_facts(status.accounts)]
    data = {"state": "changed", "before": before.as_dict(), **status.as_dict()}
    output.emit_answer(as_json, data, f"limit of {scope or 'all'}: {now}, before {before}", facts, SCHEMA)


@app.command(cls=Command)
def check(
    url: str = URL,
    head: Text = option("HEAD", "Number and digest that ledger head printed before."),
    as_json: bool = flags.JSON,
) -> None:
    """Verify the chain of entries, and that everything booked follows from it.

    wpriv ledger check sqlite:///b.db
    """
    with _service()(url) as ledger:
        remarks, last = ledger.check(head), ledger.head()
    data = {"state": "sound", "remarks": remarks, "head": vars(last)}
    line = f"sound: {last.seq} entries, and all that is booked follows from them"
    output.emit_answer(as_json, data, line, [("note", remark) for remark in remarks], SCHEMA)


@app.command(cls=Command)
def status(
    url: str = URL,
    words: list[str] | None = argument("STEPS", "Also tell how many would fit in one release.", default=None),
    scope: flags.Text = option("SCOPE", "Of STEPS: where they would read."),
    as_json: bool = flags.JSON,
) -> None:
    """Print what is promised, what is booked, and what is left.

    wpriv ledger status sqlite:///b.db

    wpriv ledger status sqlite:///b.db "gauss sigma=100"
    """
    service = _service()
    from wpriv.ledger.scopes import Place

    with service(url) as ledger:
        if scope is not None:
            ledger.charter.tree.check(Place.parse(scope))
        now, fits = ledger.status(), None
        if words:
            fits = ledger.fits(" ".join(words), **_about(scope=scope))
    if as_json:
        output.emit_result(SCHEMA, **now.as_dict(), fits=fits)
        return
    output.emit_bold(*now.promises)
    facts = [("rule", now.rule), *_limits(now), *_facts(now.accounts)]
    facts += [("releases", ", ".join(f"{count} {state}" for state, count in now.states.items()))] * bool(now.states)
    if words:
        several = "no single number: steps of several kinds"
        facts.append(("would fit", several if fits is None else f"{fits} of {' '.join(words)} in one release"))
    facts += [] if now.fixed is None else [("what ran", now.fixed)]
    output.emit_facts(facts)


@app.command(cls=Command)
def plan(
    words: list[str] = argument("[URL] FORECAST", "A ledger for its limits, and steps in words."),
    eps: Text = EPS,
    delta: Text = DELTA,
    rho: Text = RHO,
    mu: Text = MU,
    adjacency: Text = ADJACENCY,
    as_json: bool = flags.JSON,
) -> None:
    """Print how often a forecast fits under each rule, and name the best.

    wpriv ledger plan "gauss sigma=100 n=10 + laplace scale=100 n=10" --eps 1 --delta 1e-6
    """
    from wpriv.ledger import charter, forecast
    from wpriv.ledger.filters import Limit

    given = _about(**flags.numbers(eps=eps, delta=delta, rho=rho, mu=mu))
    group, relation, limits = 1, adjacency or "add-remove", [Limit(**given)] if given else []
    if "://" in words[0]:
        with _service()(words.pop(0)) as ledger:
            tree, group = ledger.charter.tree, ledger.charter.group
            relation, limits = tree.adjacency, limits or [gate.limit for gate in tree.gates if gate.scope == "all"]
    if not words:
        raise UsageError("a forecast has no steps; write them behind the URL, as gauss sigma=100 n=10")
    rows = forecast.forecast(charter.process_of(" ".join(words), relation, group), limits)
    best = forecast.best(rows)
    if as_json:
        output.emit_rows([row.as_dict() for row in rows], SCHEMA, best=None if best is None else best.rule)
        return
    output.emit_bold("no rule admits it" if best is None else f"rule {best.rule} admits most: {best.rounds} times")
    output.emit_table(
        ["rule", "times"], [[row.rule, row.reason if row.rounds is None else str(row.rounds)] for row in rows]
    )


@app.command(cls=Command)
def head(url: str = URL, as_json: bool = flags.JSON) -> None:
    """Print number and digest of the last entry, to keep where nobody who writes the ledger can change it.

    wpriv ledger head sqlite:///b.db
    """
    with _service()(url) as ledger:
        last = ledger.head()
    _emit(as_json, str(last), seq=last.seq, digest=last.digest)


@app.command(cls=Command)
def export(
    url: str = URL,
    out: str = option("FILE", "X.json: steps for budget --history; X.jsonl: all entries.", default=...),
    as_json: bool = flags.JSON,
) -> None:
    """Write the releases that began as a history for the calculator, or all entries.

    wpriv ledger export sqlite:///b.db --out h.json
    """
    with _service()(url) as ledger:
        count = ledger.export(out)
    what = ("entry" if count == 1 else "entries") if out.endswith(".jsonl") else "step" + "s" * (count != 1)
    _emit(as_json, f"{out}: {count} {what}", state="written", count=count, out=out)


@app.command("import", cls=Command)
def import_(
    url: str = URL,
    file: str = argument("FILE", "Entries that ledger export wrote to a .jsonl file."),
    as_json: bool = flags.JSON,
) -> None:
    """Make a ledger from the entries of another one, which are verified first.

    wpriv ledger import sqlite:///copy.db entries.jsonl
    """
    if "://" not in url and "://" in file:
        raise UsageError(f"the URL comes first: wpriv ledger import {file} {url}")
    _service()
    from wpriv.ledger.reading import import_entries

    last = import_entries(url, file)
    _emit(as_json, str(last), seq=last.seq, digest=last.digest)


@app.command(cls=Command)
def migrate(
    url: str = URL,
    backup: str = option("FILE", "A new .jsonl file, to which all entries are written first.", default=...),
    as_json: bool = flags.JSON,
) -> None:
    """Bring a ledger of an earlier version of wpriv up to date; its entries keep their bytes.

    wpriv ledger migrate sqlite:///b.db --backup entries.jsonl
    """
    _service()
    from wpriv.ledger import reading

    before, now = reading.migrate(url, backup)
    words = f"schema {before} became {now}; {backup} has all entries as they were"
    _emit(as_json, words, state="migrated", before=before, now=now, backup=backup)


@app.command(cls=Command)
def serve(
    url: str = URL,
    port: Text = option("N", "Port of the page (default 8787); 0 for any that is free."),
    host: str = option("NAME", "127.0.0.1 (default), localhost or ::1: this machine alone.", default="127.0.0.1"),
    token_file: Text = option("FILE", "Also spend from the page, with the token in this file."),
) -> None:
    """Show a ledger in the browser of this machine: what is spent, by whom, what is left, what a release would cost.

    wpriv ledger serve sqlite:///b.db
    """
    from wpriv.errors import require

    _service()
    for package in ("starlette", "uvicorn"):
        require(package, "the page of a ledger")
    from wpriv.ledger import page
    from wpriv.ledger.store import without_password
    from wpriv.numerics.numbers import whole

    number = 8787 if port is None else whole(port, "--port")
    if not 0 <= number <= 65535:
        raise UsageError(f"--port is a number from 0 to 65535; found {number}")
    token = None if token_file is None else page.read_token(token_file)
    mode = "read-only" if token is None else "spending needs the token"
    about = f"shows {without_password(url)}, {mode}"
    page.serve(url, host=host, port=number, token=token, ready=lambda at: output.emit(f"{at} {about}"))


def _service() -> type[Ledger]:
    from wpriv.errors import require

    require("sqlalchemy", "a ledger")
    from wpriv.ledger.service import Ledger

    return Ledger


def _emit(as_json: bool, line: str, **data: object) -> None:
    if as_json:
        output.emit_result(SCHEMA, **data)
    else:
        output.emit(line)


def _about(**given: object) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None and value is not False}


def _limits(status: Status) -> list[tuple[str, str]]:
    """The limits in force that are below what is promised."""
    return [("limit", f"{now} at present, up to {most} ({scope})") for scope, now, most in status.limits]


def _facts(accounts: tuple[Account, ...]) -> list[tuple[str, str]]:
    """What is left of each account, of limits with several in one line."""
    from wpriv.numerics.numbers import text

    rows: dict[str, list[str]] = {}
    for each in accounts:
        share = "closed" if each.closed else f"{text(100 * each.left, up=False, digits=4)}%"
        size = f"{each.name} {share} of {text(each.in_force, up=False, digits=4)}"
        rows.setdefault(f"{each.scope}, {each.limit}", []).append(size)
    return [("left", f"{', '.join(words)} ({name})") for name, words in rows.items()]


def _print(receipt: Receipt, as_json: bool) -> None:
    if as_json:
        output.emit_result(SCHEMA, **receipt.as_dict())
        return
    if receipt.state == "fits":
        output.emit("fits; nothing was spent")
        return
    again = " before; nothing was spent again" if receipt.repeated else ""
    output.emit_bold(f"release {receipt.release}: {receipt.state}{again}")
    facts = [("entry", f"{receipt.seq} {receipt.digest}")]
    facts += [("expires", receipt.expires)] if receipt.expires else []
    facts += [("nonce", receipt.nonce)] if receipt.nonce else []
    output.emit_facts(facts)
