"""The documentation site. `python -m docs` builds and opens it."""
