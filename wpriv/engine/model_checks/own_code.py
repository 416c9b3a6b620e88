"""Tell the code of the calling program from that of installed libraries."""

from __future__ import annotations

import sys
import types

LIBRARIES = ("wpriv", "torch", "numpy")


def installed(module: str | None) -> bool:
    """Return whether a module is one of Python, torch, numpy or another installed library, and not of the program."""
    top = (module or "").partition(".")[0]
    if top == "__main__":
        return False
    if top in LIBRARIES or top in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(module or ""), "__file__", None) or ""
    return "site-packages" in file or "dist-packages" in file


def names(code: types.CodeType) -> list[str]:
    """Return the names of globals and attributes in a function and the functions within it."""
    nested = [name for part in code.co_consts if isinstance(part, types.CodeType) for name in names(part)]
    return list(dict.fromkeys([*code.co_names, *nested]))
