"""wpriv audit"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from wpriv.cli import flags, train
from wpriv.cli.parsing import RESULTS, option
from wpriv.errors import UsageError


def command(
    recipe: train.Source,
    method: Annotated[
        str, option("NAME", "one-run (many canaries) or two-worlds (many runs, one canary each).")
    ] = "one-run",
    canaries: Annotated[
        int | None, option("M", "Canaries of each run (default 2000, at most one for each weight).")
    ] = None,
    runs: Annotated[int | None, option("R", "Number of trainings (default 1; for two-worlds 200).")] = None,
    device: train.Device = "cpu",
    out: Annotated[
        Path | None, option("DIR", "Folder of the results (default results/<name>-audit).", group=RESULTS)
    ] = None,
    changes: train.Set = None,
    quick: train.Quick = False,
    data_root: flags.DataRoot = None,
    as_json: flags.Json = False,
) -> None:
    """Train with canaries and bound eps from below at 95% confidence, beside the certified bracket.

    Exit code 1 where the lower bound exceeds the certified upper end: the training is not as private as certified.
    Exit code 3 where no outcome could have exceeded it: more canaries, or more runs, are needed.

    wpriv audit quick/digits --quick --canaries 500

    wpriv audit quick/digits --method two-worlds --runs 200 --out audited
    """
    # idle threads of torch would spin on processors that other jobs could use
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from wpriv.cli import output, training_output

    output.doing("loading torch")
    from wpriv.training import train as training
    from wpriv.training.audit import audit

    if device not in ("cpu", "cuda"):
        raise UsageError(f"--device must be cpu or cuda; found {device!r}")
    loaded = training.recipe_of(recipe, quick=quick, changes=train.changed_keys(changes or []))
    folder = out or loaded.default_out.with_name(f"{loaded.default_out.name}-audit")
    output.doing("preparing the audit")
    with output.counting("audit") as counting:
        result = audit.run(
            loaded,
            folder,
            method=flags.folded(method) or method,
            canaries=canaries,
            runs=runs,
            device=device,
            root=data_root,
            counting=counting,
        )
    training_output.print_audit(result, as_json)
    result.require()
    result.require_power()
