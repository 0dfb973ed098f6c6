"""Shared modules of the course tests are in this folder, which pytest adds to the path."""
