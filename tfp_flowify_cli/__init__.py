"""The command `tfp-flowify`: train, evaluate, sample, reproduce, infer, classifier.

A package of its own, since `import tfp_flowify` takes the seconds that TensorFlow takes, and `--help` should not.
"""

import argparse
import os
import platform
import re
import sys
import warnings
from importlib import metadata

from tfp_flowify_cli import classifier, evaluate, infer, reproduce, sample, train
from tfp_flowify_cli.start import import_quietly

COMMANDS = {
    "train": train,
    "evaluate": evaluate,
    "sample": sample,
    "reproduce": reproduce,
    "infer": infer,
    "classifier": classifier,
}


#: What a report of an error should name, beside Python.
DISTRIBUTIONS = ("tfp-flowify", "tensorflow", "tensorflow-probability", "tf-keras", "keras", "numpy")


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns 0 if all went well."""
    chosen = make_parser().parse_args(arguments)
    try:
        import_quietly()
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = _show_warning
            return chosen.run(chosen) or 0
    except Exception as error:
        if os.environ.get("TFP_FLOWIFY_TRACEBACK"):
            raise
        print(f"tfp-flowify: {_told(error, vars(chosen))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\ntfp-flowify: interrupted", file=sys.stderr)
        return 130


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands. Programs that complete what is typed, such as shtab, read it too."""
    parser = argparse.ArgumentParser(
        prog="tfp-flowify",
        description="Neural networks as normalizing flows: train them, test them, draw from them.",
        epilog="With TFP_FLOWIFY_TRACEBACK=1 in the environment an error shows where it came from, with "
        "TF_CPP_MIN_LOG_LEVEL=0 TensorFlow tells what it finds when it starts, such as why there is no GPU.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, default=argparse.SUPPRESS, help="show this and other versions, and stop"
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
    return parser


class _Version(argparse.Action):
    """Looks versions up only when they are asked for."""

    def __call__(self, parser, *_):
        print(", ".join(f"{name} {_version(name)}" for name in DISTRIBUTIONS), end=", ")
        print(f"Python {platform.python_version()}")
        parser.exit()


def _version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _show_warning(message, category, *_):
    if category is UserWarning:  # Others are for programmers.
        print(f"tfp-flowify: warning: {message}", file=sys.stderr)


def _told(error, options) -> str:
    """An error in a few lines, with the arguments of functions as the options of the command that they are."""
    text = str(error).strip()
    if "No space left on device" in text:
        return "The disk is full. What was written before is still there: make room, and go on with a run by --resume."
    if type(error).__name__ == "ResourceExhaustedError":
        sizes = re.search(r"(OOM when allocating.*?)(?: on |\n|$)", text)
        return (
            f"There is not enough memory{f' ({sizes[1]})' if sizes else ''}. Use a smaller --batch-size, fewer "
            "--validation-examples, smaller images (--image-size) or fewer columns."
        )
    if not isinstance(error, ValueError | TypeError | OSError | FloatingPointError):
        lines = text.splitlines() or [""]
        what = next((line for line in lines if "Graph execution error" not in line and line.strip()), lines[0])
        return f"{type(error).__name__}: {what}\nSet TFP_FLOWIFY_TRACEBACK=1 to see where it came from."
    for name in options:
        flag = f"--{name.replace('_', '-')}"
        text = re.sub(rf"(?<![\w-]){name}=True\b", flag, text)
        text = re.sub(rf"(?<![\w-]){name}=", f"{flag} ", text)
    return text
