"""`python -m tfp_flowify_cli` is the command `tfp-flowify`, as `python -m tfp_flowify` is."""

import sys

from tfp_flowify_cli import main

if __name__ == "__main__":
    sys.exit(main())
