"""The command `tfp-flowify classifier`: see --help."""

import sys

from tfp_flowify_cli import main

if __name__ == "__main__":
    sys.exit(main(["classifier", *sys.argv[1:]]))
