"""Configuration of the documentation site (Sphinx). `python -m docs` builds the site; no part of the build needs a network."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent), str(DOCS / "_ext")]

project = "labkit"
author = "the labkit developers"
copyright = author
release = version = installed_version("labkit-distributed")

extensions = ["myst_nb", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["_build", "_ext", "_templates"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "attrs_inline"]
myst_heading_anchors = 4
nb_execution_mode = "off"

html_theme = "pydata_sphinx_theme"
html_title = "labkit"
