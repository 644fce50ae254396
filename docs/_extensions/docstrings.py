"""Docstrings as they are written here, for Sphinx.

Here an indented block is shown as it is, as in Markdown, and signs such as `*` mean nothing outside of backticks. In
reStructuredText the one is a quotation, and the other is markup.

Signatures are those of `__init__`, which Keras hides, with the names of our types in place of what they stand for.
"""

import inspect
import re

from sphinx.util.inspect import signature, stringify_signature

from tfp_flowify.core import types

#: Sections that have indented text by nature.
SECTIONS = ("Args:", "Attributes:", "Returns:", "Raises:", "Yields:")


def shown_as_written(lines: list) -> list:
    """The lines of a docstring, with blocks marked and signs escaped."""
    result, in_section, in_block, in_example = [], False, False, False
    for i, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if line.strip():
            in_section = line.strip() in SECTIONS or (in_section and indent > 0)
            starts = indent >= 4 and not in_section and not in_block and not in_example
            if starts and not lines[i - 1].strip():
                result += [".. code-block:: text", ""]
                in_block = True
            in_block = in_block and indent >= 4
        in_example = line.startswith(">>>") or (in_example and bool(line.strip()))
        result.append(line if in_block or in_example else _escaped(line))
    return result


def _escaped(line: str) -> str:
    """A line in which only backticks mean something."""
    parts = re.split(r"(`[^`]*`)", line)
    return "".join(part if i % 2 else _escaped_text(part) for i, part in enumerate(parts))


def _escaped_text(text: str) -> str:
    return re.sub(r"(\w)_(?!\w)", r"\1\\_", re.sub(r"([*|\\])", r"\\\1", text))


def _process(app, what, name, obj, options, lines):
    lines[:] = shown_as_written(lines)


#: What a type is called in `tfp_flowify.core.types`, by how Sphinx writes it; the longest first.
NAMES = {
    str(stringify_signature(inspect.Signature(return_annotation=value), unqualified_typehints=True))[6:]: name
    for name, value in vars(types).items()
    if name in ("TensorLike", "RawCondition", "Examples", "Seed", "Shape", "PathLike", "TensorFunction")
}


def _process_signature(app, what, name, obj, options, arguments, returned):
    if what == "class" and arguments == "(*args, **kwargs)":
        own = signature(obj.__init__, bound_method=True)
        arguments = stringify_signature(own, show_return_annotation=False, unqualified_typehints=True)
    return _with_names(arguments), _with_names(returned)


def _with_names(text):
    """A signature with the names of types in place of what they stand for."""
    for written in sorted(NAMES, key=len, reverse=True):
        text = text and text.replace(written, NAMES[written])
    return text


def _is_of_others(app, what, name, obj, skip, options):
    """Leaves out what classes take from Keras and TFP as it is: it is in their references."""
    function = obj.fget if isinstance(obj, property) else obj
    module = getattr(function, "__module__", None) or "tfp_flowify"
    return None if module.partition(".")[0] == "tfp_flowify" else True


def setup(app):
    app.connect("autodoc-skip-member", _is_of_others)
    app.connect("autodoc-process-signature", _process_signature)
    app.connect("autodoc-process-docstring", _process, priority=100)  # Before the sections are read.
    return {"parallel_read_safe": True, "parallel_write_safe": True}
