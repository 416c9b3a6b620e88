"""Make and write figures by matplotlib, which is loaded here alone."""

from __future__ import annotations

import io
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wpriv.errors import MissingResource, UsageError
from wpriv.files import durable_writes

# without dates and versions, the same table gives the same file
METADATA: dict[str, dict[str, None]] = {"png": {"Software": None}, "pdf": {"CreationDate": None}, "svg": {"Date": None}}


def figure_class() -> Any:
    """Return matplotlib's class of figures, without pyplot: no window system is used.

    Raises:
        MissingResource: matplotlib is not installed, or refuses to load under the settings of this machine.
    """
    try:
        from matplotlib.figure import Figure
    except (ValueError, ImportError) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "matplotlib":
            raise MissingResource(
                "figures need the Python package matplotlib, which is not installed. Install wpriv with all it needs, "
                "or this package alone"
            ) from None
        backend = os.environ.get("MPLBACKEND")
        if backend and "backend" in str(error):
            raise MissingResource(
                f"MPLBACKEND is {backend[:60]!r}, which matplotlib does not know; unset it to draw figures"
            ) from None
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise MissingResource(
            f"figures need matplotlib, which does not load here: {reason}. Check its settings"
        ) from None
    return Figure


def unfit(reason: str) -> UsageError:
    return UsageError(f"{reason}. Choose another with --figure")


def save(figure: Any, out: Path, formats: Sequence[str], stem: str) -> list[Path]:
    """Write a figure in each format, each file in one piece."""
    files = []
    durable_writes.make_folder(out)
    for kind in formats:
        path, content = out / f"{stem}.{kind}", io.BytesIO()
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="constrained_layout not applied")
                figure.savefig(content, format=kind, metadata=METADATA[kind])
        except UserWarning:
            raise unfit("the figure does not fit this table: its legend leaves no room for the axes") from None
        except (ValueError, OverflowError) as error:
            raise unfit(f"the figure does not fit this table: {error}") from None
        durable_writes.replace(path, content.getvalue())
        files.append(path)
    return files
