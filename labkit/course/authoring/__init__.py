"""Checks a master notebook and makes its release: the students' notebook and the public bundle."""
