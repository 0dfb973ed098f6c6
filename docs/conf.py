"""Configuration of the documentation site (Sphinx). `python -m docs` builds the site; no part of the build needs a network."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent))  # the package labkit of this checkout, and docs._ext

project = "labkit"
author = "the labkit developers"
copyright = author
release = version = installed_version("labkit-distributed")

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "docs._ext.formulas",
    "docs._ext.generated",
    "docs._ext.references",
]
exclude_patterns = ["_build", "_ext", "_templates", "**.ipynb_checkpoints"]
templates_path = ["_templates"]
nitpicky = True
smartquotes = False  # `--option` stays as it is typed
nitpick_ignore_regex = [  # other packages: their documentation is not available without a network
    (r"py:.*", r"(abc|collections|contextlib|dataclasses|os|pathlib|types|typing)\..*"),
    (r"py:.*", r"(np|numpy|anywidget|dask|distributed|ipywidgets|matplotlib|pandas|traitlets)\..*"),
    (r"py:.*", r"Client|DaskDeployment"),  # Dask's, by their names in annotations for type checkers
    (r"py:.*", r"labkit\.nn\.network\.Network"),  # no public name: an argument that only `lk.load` passes
]
default_role = "labkit-code"

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

# Lessons and concepts are executed: by myst-nb, in the order of the pages, and again only if they have changed.
nb_execution_mode = "cache"
nb_execution_cache_path = str(DOCS / "_build" / "cells")
nb_execution_excludepatterns = ["lessons/*"] if tags.has("stored") else []  # noqa: F821  `python -m docs --stored`
nb_execution_timeout = 300  # seconds for a cell
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
nb_ipywidgets_js = {}  # widgets show their static output: pages work without a kernel and without a network
suppress_warnings = ["mystnb.mime_priority"]  # a part of an output that has only a widget is left out
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
python_display_short_literal_types = True
maximum_signature_line_length = 88
autosummary_ignore_module_all = False
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
toc_object_entries_show_parents = "hide"

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_title = "labkit"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_show_sourcelink = False
html_sidebars = {name: [] for name in ("index", "getting_started", "cli", "data", "glossary", "design", "changelog")}
html_copy_source = False
html_theme_options = {
    "logo": {"text": "labkit"},
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_nav_level": 1,
    "navigation_with_keys": True,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
