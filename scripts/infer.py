"""The command `tfp-flowify infer`: see --help."""

import sys

from tfp_flowify_cli import main

if __name__ == "__main__":
    sys.exit(main(["infer", *sys.argv[1:]]))
