"""The command ``wpriv``, and ``python -m wpriv``."""

import os
import sys


def main() -> int:
    """Run the command line; Ctrl-C while the program is still being loaded ends as quietly as it does later."""
    try:
        from wpriv.cli.main import main as run

        code = run()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            print("wpriv: interrupted", file=sys.stderr)
        return 130
    if os.environ.get("WORLD_SIZE", "1") != "1" and "torch.distributed" in sys.modules:
        _end(code)
    return code


def _end(code: int) -> None:
    """End a process of torchrun at once: threads that torch leaves over can abort the end of the interpreter."""
    import atexit
    import contextlib

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError):
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
