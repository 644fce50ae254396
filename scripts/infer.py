"""The command `tfp-flowify infer`: see --help."""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from tfp_flowify.commands import main

if __name__ == "__main__":
    sys.exit(main(["infer", *sys.argv[1:]]))
