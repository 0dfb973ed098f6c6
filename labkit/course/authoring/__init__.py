"""Checks a reference notebook and makes its release: the students' notebook and the public bundle."""
