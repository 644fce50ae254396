"""The command `tfp-flowify train`: see --help."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from tfp_flowify.commands import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
