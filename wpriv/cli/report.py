"""wpriv report"""

from __future__ import annotations

from wpriv.cli import flags, output
from wpriv.cli.parsing import argument, option
from wpriv.errors import UsageError


def command(
    source: str = argument("DIR", "A results folder of train, compare or audit."),
    form: str = option(
        "FORM",
        "summary; html: a self-contained page with statement, numbers and figures; registry: an entry for the "
        "deployments registry of OpenDP, in YAML; or checklist: what a reader asks of a private model, answered or "
        "open, in Markdown.",
        "--as",
        default="summary",
    ),
    changes: list[str] | None = option(
        "KEY=VALUE", "Fill in the registry entry: deployment.basic.intended_use='...'; repeatable.", "--set"
    ),
    out: str | None = option("FILE", "Write the report to this file."),
    as_json: bool = flags.JSON,
) -> None:
    """Say what a results folder holds: a summary, a web page, a registry entry, or a checklist for its publication.

    Nothing is computed anew. Exit code 1: the weights in the folder are not those of its statement.

    wpriv report results/digits

    wpriv report results/digits --as checklist

    wpriv report results/fig7-dpsgd --as html --out fig7.html
    """
    import json
    from pathlib import Path

    from wpriv.cli.train import changed_keys
    from wpriv.files import durable_writes
    from wpriv.training.reports import report

    result = report.report(source, form.casefold(), changed_keys(changes or []))
    output.say("note", *result.notes)
    text = (
        json.dumps(durable_writes.plain(result.data), indent=2, allow_nan=False)
        if as_json
        else result.text.rstrip("\n")
    )
    if out is None:
        if result.summary is not None and not as_json:
            output.emit_bold(result.summary.headline)
            output.emit_facts(result.facts())
        else:
            output.emit(text)
        return
    if Path(out).is_dir():
        raise UsageError(f"--out wants a file; {out} is a folder")
    durable_writes.replace(Path(out), text + "\n")
    output.say("wrote", out)
