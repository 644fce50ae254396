"""The site, from the pages of the whole repository: `python -m sphinx -W --keep-going -c docs . site`."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # Also in the tutorials, which run in processes of their own.

project = "tfp_flowify"
author = copyright = "the authors of tfp_flowify"
root_doc = "docs/index"
include_patterns = ["docs/**", "results/**", "CHANGELOG.md", "CONTRIBUTING.md"]
exclude_patterns = ["docs/_extensions", ".*", "runs", "site", "build", "dist", "tests", "tfp_flowify*", "scripts"]
extensions = [
    *("sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "myst_nb"),
    *("docstrings", "mathml", "front_door"),
]

# Nothing is fetched from elsewhere: the theme takes the fonts of the system, and mathematics are MathML.
html_theme = "furo"
html_title = project
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False

myst_enable_extensions = ["dollarmath", "html_image", "colon_fence"]
myst_heading_anchors = 4

# Tutorials run when the site is built, and again only when their text changes.
nb_execution_mode = "cache"
nb_execution_in_temp = True  # They write files.
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_output_stderr = "remove"
nb_kernel_rgx_aliases = {".*": "python3"}

# Words in backticks become links where they are names of the reference.
default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_inherit_docstrings = False  # Those of Keras and TFP are in their references.
napoleon_use_rtype = False
napoleon_use_ivar = True
napoleon_numpy_docstring = False
