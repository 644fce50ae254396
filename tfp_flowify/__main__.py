"""`python -m tfp_flowify` is the command `tfp-flowify`, but imports TensorFlow first: its `--help` takes seconds."""

import sys

from tfp_flowify_cli import main

if __name__ == "__main__":
    sys.exit(main())
