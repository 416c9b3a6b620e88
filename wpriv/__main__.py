"""python -m wpriv"""

import sys

from wpriv.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
