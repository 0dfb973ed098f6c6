"""The lab: an interactive page in a notebook with the panels of `labkit.views`. Importing this package imports no other
module.
"""
