"""The command `tfp-flowify sample`: see --help."""

import sys

from tfp_flowify_cli import main

if __name__ == "__main__":
    sys.exit(main(["sample", *sys.argv[1:]]))
