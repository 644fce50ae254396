"""The command `tfp-flowify evaluate`: see --help."""

import sys

from tfp_flowify_cli import main

if __name__ == "__main__":
    sys.exit(main(["evaluate", *sys.argv[1:]]))
