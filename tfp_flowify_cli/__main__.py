"""`python -m tfp_flowify_cli` is the command `tfp-flowify`."""

import sys

from tfp_flowify_cli import main

if __name__ == "__main__":
    sys.exit(main())
