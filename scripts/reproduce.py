"""The command `tfp-flowify reproduce`: see --help."""

import sys

from tfp_flowify_cli import main

if __name__ == "__main__":
    sys.exit(main(["reproduce", *sys.argv[1:]]))
