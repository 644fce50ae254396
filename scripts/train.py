"""The command `tfp-flowify train`: see --help."""

import sys

from tfp_flowify_cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
