"""The command `tfp-flowify`: train, evaluate, sample, reproduce."""

import argparse
import os
import sys

from tfp_flowify.commands import evaluate, reproduce, sample, train

COMMANDS = {"train": train, "evaluate": evaluate, "sample": sample, "reproduce": reproduce}


def main(arguments=None) -> int:
    """Runs a command; returns 0 if all went well."""
    parser = argparse.ArgumentParser(
        prog="tfp-flowify", description="Neural networks as normalizing flows: train them, test them, draw from them."
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        command = commands.add_parser(
            name,
            usage=f"tfp-flowify {name} [options]" + (" FLOW" if name in ("evaluate", "sample") else ""),
            help=module.__doc__.strip().splitlines()[0],
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    chosen = parser.parse_args(arguments)
    try:
        return chosen.run(chosen) or 0
    except Exception as error:
        if os.environ.get("TFP_FLOWIFY_TRACEBACK"):
            raise
        expected = isinstance(error, ValueError | TypeError | OSError | FloatingPointError)
        told = str(error) if expected else f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        print(f"tfp-flowify: {told}", file=sys.stderr)
        if not expected:
            print("Set TFP_FLOWIFY_TRACEBACK=1 to see where it came from.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ntfp-flowify: interrupted", file=sys.stderr)
        return 130
