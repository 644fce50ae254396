"""The command `tfp-flowify classifier`: see --help."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from tfp_flowify.commands import main

if __name__ == "__main__":
    sys.exit(main(["classifier", *sys.argv[1:]]))
