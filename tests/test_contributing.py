"""CONTRIBUTING.md agrees with the project."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
QUOTED = re.findall(r"`([^`\n]+)`", TEXT)
PATHS = sorted({quoted for quoted in QUOTED if re.fullmatch(r"[\w.-]+/[\w./-]*|[\w-]+\.(?:py|md|toml)", quoted)})
COMMANDS = re.findall(r"^ *(?:pytest|python) (?:.*\\\n)*.*", TEXT, re.MULTILINE) + QUOTED


def test_every_path_exists():
    assert len(PATHS) > 25
    missing = [path for path in PATHS if not (ROOT / path).exists()]
    assert not missing, "\n".join(missing)


def test_every_path_in_a_command_exists():
    paths = {path for command in COMMANDS for path in re.findall(r"\b(?:tests|notebooks)/[\w./*-]+", command)}
    assert len(paths) > 20
    paths.remove("tests/results/test_every_second.py")  # the contributor's own file
    missing = sorted(path for path in paths if not list(ROOT.glob(path)))
    assert not missing, "\n".join(missing)


def test_the_tables_are_in_the_files_that_it_names():
    tables = {
        "FAMILIES": "labkit/strategies/__init__.py",
        "THEORY": "benchmarks/slow_worker.py", "OPTIONS": "tests/digests/digest_runs.py",
        "EXPECTED": "tests/narrative/test_sentence.py", "PANELS": "labkit/views/plots.py", "SUITES": "conftest.py",
    }  # fmt: skip
    for name, file in tables.items():
        assert {name, file} <= set(QUOTED), name
        assert re.search(rf"^{name}\b.* = ", (ROOT / file).read_text(), re.MULTILINE), name


def test_it_names_every_layer_of_the_tests():
    layers = re.search(r"^LAYERS = \((.*)\)", (ROOT / "conftest.py").read_text(), re.MULTILINE)
    assert set(re.findall(r'"(\w+)"', layers[1])) <= set(QUOTED)


def test_the_options_of_the_build_of_the_site_exist():
    from docs.__main__ import main

    known = {option for parameter in main.params for option in parameter.opts}
    used = set(re.findall(r"python -m docs (--[\w-]+)", TEXT))
    assert "--check" in used <= known


def test_the_sections_of_the_design_document_are_those_it_names():
    sections = dict(re.findall(r"^## (\d+)\. (.*)", (ROOT / "DESIGN.md").read_text(), re.MULTILINE))
    assert (sections["2"], sections["6"]) == ("Layers", "Where to add what")
