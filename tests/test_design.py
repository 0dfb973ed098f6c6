"""DESIGN.md and the glossary name only files, modules, tests and identifiers that exist."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
TEXT = (ROOT / "DESIGN.md").read_text() + GLOSSARY
FENCED = "\n".join(re.findall(r"^```\w*\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE))
QUOTED = re.findall(r"`([^`\n]+)`", re.sub(r"^```\w*\n.*?^```", "", TEXT, flags=re.DOTALL | re.MULTILINE))

PATH = re.compile(r"(?!/)[\w.-]*/[\w./-]*|[\w-]+\.(?:py|md|toml|ipynb|css|js)")
PATHS = sorted({quoted for quoted in QUOTED if PATH.fullmatch(quoted)} | set(re.findall(r"[\w./-]+\.py\b", FENCED)))
TESTS = sorted({quoted for quoted in QUOTED if re.fullmatch(r"tests/[\w./-]+::\w+", quoted)})
NAME = re.compile(r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*")
NAMES = sorted(
    {name for name in (re.sub(r"\(.*\)$", "", quoted) for quoted in QUOTED) if NAME.fullmatch(name)} - set(PATHS)
)


def place(path):
    """The file or folder: paths are relative to the repository, or to `labkit/`."""
    return next((base / path for base in (ROOT, ROOT / "labkit") if (base / path).exists()), None)


@functools.cache
def words():
    """Every identifier in the Python sources, with the names of modules and packages."""
    files = [path for folder in ("labkit", "tests", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    text = "\n".join(path.read_text() for path in (*files, ROOT / "conftest.py", ROOT / "pyproject.toml"))
    parts = {part for path in files for part in path.relative_to(ROOT).with_suffix("").parts}
    return set(re.findall(r"[A-Za-z_]\w*", text)) | parts


@functools.cache
def attributes():
    """{class: the identifiers in its source}, for each class of labkit; classes of one name are taken together."""
    found = {}
    for path in (ROOT / "labkit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, set()).update(re.findall(r"[A-Za-z_]\w*", ast.unparse(node)))
    return found


def test_the_design_document_names_files_and_identifiers():
    assert len(PATHS) > 100
    assert len(NAMES) > 100


@pytest.mark.parametrize("path", PATHS)
def test_every_path_exists(path):
    assert place(path) is not None


@pytest.mark.parametrize("test", TESTS)
def test_every_named_test_exists(test):
    path, name = test.split("::")
    assert f"def {name}(" in (ROOT / path).read_text()


@pytest.mark.parametrize("name", NAMES)
def test_every_name_occurs_in_the_sources(name):
    assert set(name.split(".")) - {"lk"} <= words()


@pytest.mark.parametrize("name", [name for name in NAMES if re.fullmatch(r"[A-Z]\w+\.\w+", name)])
def test_every_attribute_belongs_to_its_class(name):
    owner, attribute = name.split(".")
    assert attribute in attributes()[owner]


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("labkit.")])
def test_every_dotted_module_exists(name):
    parts = name.split(".")
    assert place("/".join(parts)) is not None or place("/".join(parts) + ".py") is not None


def test_the_glossary_is_alphabetical_and_every_term_has_one_source():
    rows = [
        line.strip("| ").split(" | ") for line in GLOSSARY.splitlines() if line[:1] == "|"
    ][2:]
    assert len(rows) > 100
    assert all(len(row) == 3 and all(row) for row in rows)
    terms = [row[0].lower() for row in rows]
    assert terms == sorted(terms)
    assert len(set(terms)) == len(terms)
