"""``python -m clover_code`` is the `clover-code` command."""

import sys

from clover_code.main import main

if __name__ == "__main__":
    sys.exit(main())
