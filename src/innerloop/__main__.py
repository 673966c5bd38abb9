"""``python -m innerloop``."""

import sys

from innerloop.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
