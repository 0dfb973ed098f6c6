"""DESIGN.md, the pages of docs/design and the glossary name only files, modules, tests and identifiers that exist."""

import ast
import functools
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
PAGES = [ROOT / "DESIGN.md", *sorted((ROOT / "docs" / "design").glob("*.md"))]
TEXT = "\n".join(path.read_text() for path in PAGES) + GLOSSARY
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


def test_every_path_and_every_named_test_exists():
    assert len(PATHS) > 100
    tests = [(test, *test.split("::")) for test in TESTS]
    missing = [path for path in PATHS if place(path) is None]
    missing += [test for test, path, name in tests if f"def {name}(" not in (ROOT / path).read_text()]
    assert not missing, "\n".join(missing)


def test_every_name_occurs_in_the_sources():
    assert len(NAMES) > 100
    missing = [name for name in NAMES if not set(name.split(".")) - {"lk"} <= words()]
    assert not missing, "\n".join(missing)


def test_every_attribute_belongs_to_its_class():
    names = [name for name in NAMES if re.fullmatch(r"[A-Z]\w+\.\w+", name)]
    assert len(names) > 10
    missing = [name for name in names if name.split(".")[1] not in attributes().get(name.split(".")[0], ())]
    assert not missing, "\n".join(missing)


def test_every_dotted_module_exists():
    modules = [name.replace(".", "/") for name in NAMES if name.startswith("labkit.")]
    assert modules
    missing = [name for name in modules if place(name) is None and place(f"{name}.py") is None]
    assert not missing, "\n".join(missing)


def test_the_glossary_is_alphabetical_and_every_term_has_one_source():
    rows = [line.strip("| ").split(" | ") for line in GLOSSARY.splitlines() if line[:1] == "|"][2:]
    assert len(rows) > 100
    assert all(len(row) == 3 and all(row) for row in rows)
    terms = [row[0].lower() for row in rows]
    assert terms == sorted(terms)
    assert len(set(terms)) == len(terms)
