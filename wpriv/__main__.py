"""The command ``wpriv``, and ``python -m wpriv``."""

import sys


def main() -> int:
    """Run the command line; Ctrl-C while the program is still being loaded ends as quietly as it does later."""
    try:
        from wpriv.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        if sys.stderr is not None:
            print("wpriv: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
