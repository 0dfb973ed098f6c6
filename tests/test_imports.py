"""Imports go one way, heavy packages are imported lazily or not at all, and modules have no mutable state."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "labkit"
FILES = sorted(ROOT.rglob("*.py"))

# What each package may import of the others, besides itself and `FOR_ALL`.
FOR_ALL = {"description", "errors", "formatting", "options", "paths", "random_streams", "table"}
BELOW = {
    **{name: set() for name in FOR_ALL},
    "nn": set(),
    "data": set(),
    "trace": set(),
    "problem": {"nn", "data"},
    "predictor": {"nn", "data", "problem"},
    "summary": {"trace"},
    "roles": {"nn", "data", "trace", "problem"},
    "strategies": {"nn", "data", "trace", "problem", "roles"},
    "engines": {"nn", "data", "trace", "problem", "roles"},
    "views": {"trace"},
    "narrative": {"trace", "summary"},
}  # fmt: skip
BELOW["serialization"] = BELOW["engines"] | {"engines", "strategies"}
BELOW["spec"] = BELOW["serialization"] | {"serialization"}
BELOW["manifest"] = BELOW["spec"] | {"spec"}
BELOW["progress"] = {"engines", "narrative", "trace"}
BELOW["run"] = BELOW["manifest"] | {"manifest", "predictor", "summary", "narrative", "progress"}
BELOW["resume"] = BELOW["run"] | {"run"}
BELOW["advisor"] = BELOW["run"] | {"views"}
BELOW["sweeps"] = BELOW["run"] | {"run", "views"}
BELOW["calibration"] = BELOW["sweeps"] | {"sweeps"}
UP = BELOW["run"] | {"run", "sweeps", "calibration", "advisor", "views"}
BELOW |= {"lab": UP, "course": UP | {"lab"}, "cli": UP | {"lab", "course"}, "__init__": set(), "__main__": {"cli"}}

# The one exception upwards: `Run.watch` and `Run.plot` import the lab and the views when they are called.
EXCEPTIONS = {("run.py", "lab"), ("run.py", "views")}


def part(path):
    inner = path.relative_to(ROOT).parts
    return inner[0].removesuffix(".py")


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


@functools.cache
def imports(path):
    """(module as an absolute name, line, whether it is at the top of the module) of everything imported in a file."""
    tree = parsed(path)
    for parent in ast.walk(tree):
        for child in ast.iter_child_nodes(parent):
            child.parent = parent
    package = ("labkit", *path.relative_to(ROOT).parts[:-1])
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        above, late, typing_only = node, False, False
        while hasattr(above, "parent"):
            above = above.parent
            late |= isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef)
            typing_only |= isinstance(above, ast.If) and "TYPE_CHECKING" in ast.unparse(above.test)
        if typing_only:
            continue
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif node.level:
            base = package[: len(package) - node.level + 1]
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [module] if node.module else [f"{module}.{alias.name}" for alias in node.names]
        else:
            names = [node.module]
        found.extend((name, node.lineno, not late) for name in names)
    return found


def test_every_file_belongs_to_a_part():
    assert {part(path) for path in FILES} <= set(BELOW)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path):
    mine = part(path)
    for name, line, _ in imports(path):
        if name.split(".")[0] != "labkit" or name == "labkit":
            continue
        other = name.split(".")[1]
        if other in {mine, *FOR_ALL} or (path.name, other) in EXCEPTIONS:
            continue
        assert other in BELOW[mine], (
            f"{path.relative_to(ROOT)}:{line} imports {name}; {mine} may use {sorted(BELOW[mine])}"
        )


# The packages of the Dask engine: each imports from itself, from those before it, and from modules for all of them. These
# import from none of them; of these, the transport uses two.
LAYERS = ["transport", "worker", "cluster", "client"]
FOR_ALL_LAYERS = {"failure_detector", "processes", "protocol", "requests", "stages", "timeouts"}
FOR_TRANSPORT = {"protocol", "timeouts"}
MAKES_RUNS = ("dask_cluster.py", "client")  # `DaskCluster.start` makes a run, which is above it, when it is called


@pytest.mark.parametrize(
    "path", sorted((ROOT / "engines" / "dask").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_packages_of_the_dask_engine_are_layers(path):
    *_, mine, _ = path.relative_to(ROOT).parts
    if mine not in LAYERS:
        assert path.stem in FOR_ALL_LAYERS | {"__init__"}
    for name, line, _ in imports(path):
        if not name.startswith("labkit.engines.dask."):
            continue
        other = name.split(".")[3]
        where = f"{path.relative_to(ROOT)}:{line} imports {name}"
        if other in LAYERS:
            makes_runs = (path.name, other) == MAKES_RUNS or path.name == "__init__.py"
            assert makes_runs or (mine in LAYERS and LAYERS.index(other) <= LAYERS.index(mine)), where
        else:
            assert other in (FOR_TRANSPORT if mine == "transport" else FOR_ALL_LAYERS), where


# The packages of course work: each imports from itself, from those before it, and from the modules beside them, which import
# from no package.
COURSE = ["sandbox", "grading", "authoring"]


@pytest.mark.parametrize("path", sorted((ROOT / "course").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_packages_of_course_work_are_layers(path):
    *_, mine, _ = path.relative_to(ROOT).parts
    below = COURSE[: COURSE.index(mine) + 1] if mine in COURSE else []
    for name, line, _ in imports(path):
        if not name.startswith("labkit.course."):
            continue
        other = name.split(".")[2]
        assert other not in COURSE or other in below, f"{path.relative_to(ROOT)}:{line} imports {name}"


HEAVY = {
    "distributed": {"engines"},
    "dask": {"engines", "data"},
    "tornado": {"engines"},
    "matplotlib": {"views", "lab", "cli"},
    "ipywidgets": {"lab"},
    "anywidget": {"lab"},
    "IPython": {"lab", "progress"},
    "PIL": {"views", "lab"},
    "click": {"cli"},
    "rich": {"cli", "progress"},
    "pandas": {"trace", "data", "sweeps"},
    "sklearn": set(),
    "scipy": set(),
    "cloudpickle": {"engines"},
    "torch": set(),
}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_heavy_packages_are_imported_only_where_allowed(path):
    for name, line, at_top in imports(path):
        package = name.split(".")[0]
        where = f"{path.relative_to(ROOT)}:{line}"
        if package in HEAVY:
            assert part(path) in HEAVY[package], f"{where} imports {name}"
            if package in ("dask", "distributed") and "dask" not in path.relative_to(ROOT).parts:
                assert not at_top, f"{where} imports {name} at the top: it is imported when it is needed"
            if package == "pandas":
                assert not at_top, f"{where} imports {name} at the top, and pandas is optional"


@pytest.mark.parametrize(
    ("code", "never"),
    [
        ("import labkit", {"numpy", "distributed", "dask", "matplotlib", "ipywidgets", "anywidget", "click", "pandas"}),
        ("import labkit as lk; lk.SimulatedCluster, lk.AsyncPS, lk.train, lk.Problem, lk.Budget",
         {"distributed", "dask", "matplotlib", "ipywidgets", "anywidget", "click", "pandas", "sklearn", "scipy"}),
        ("import labkit.engines.simulated", {"distributed", "dask", "matplotlib", "ipywidgets", "anywidget"}),
        ("import labkit as lk; lk.train(lk.Problem('digits'), lk.SyncPS(), lk.SimulatedCluster(workers=2), "
         "lk.Budget(updates=2)).wait().summary()",
         {"distributed", "dask", "matplotlib", "ipywidgets", "anywidget", "sklearn", "scipy"}),
        ("import labkit as lk; lk.DaskCluster(workers=2)", {"matplotlib", "ipywidgets", "anywidget", "sklearn"}),
    ],
    ids=["import", "names", "engine", "a run", "a cluster"],
)  # fmt: skip
def test_heavy_packages_are_not_imported(code, never):
    script = f"{code}\nimport sys\nprint(' '.join(sorted({{m.split('.')[0] for m in sys.modules}})))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=180, cwd=ROOT.parent, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not never & set(done.stdout.split())


# state ----------------------------------------------------------------------------------------------------------------

ALLOWED = {
    ("roles/messages.py", "_FIELDS"),  # a cache of attributes of message classes
    ("lab/cells.py", "_open"),  # the registry of open labs: running a cell again closes the lab that it made
}
MUTATORS = {"add", "append", "update", "pop", "setdefault", "clear", "extend", "remove", "insert", "popitem"}
MAKERS = {
    "dict",
    "list",
    "set",
    "deque",
    "defaultdict",
    "Counter",
    "OrderedDict",
    "bytearray",
    "local",
    "WeakValueDictionary",
}


def changed_names(tree):
    """Names that the code of a module changes: stores into, calls a mutating method of, or declares global."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            names.update(node.names)
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            root = node.value
            while isinstance(root, ast.Subscript | ast.Attribute):
                root = root.value
            if isinstance(root, ast.Name):
                names.add(root.id)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:
            names.update(n.id for n in [node.func.value] if isinstance(n, ast.Name))
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_hold_no_state_that_changes(path):
    tree = parsed(path)
    changed = changed_names(tree)
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = getattr(node, "value", None)
        mutable = isinstance(value, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp) or (
            isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in MAKERS
        )
        for target in targets:
            if not isinstance(target, ast.Name) or target.id == "__all__":
                continue
            known = (str(path.relative_to(ROOT)), target.id)
            if known in ALLOWED:
                continue
            assert not (target.id in changed and (mutable or isinstance(value, ast.Constant))), (
                f"{known[0]}:{node.lineno}: {target.id} changes while the program runs"
            )


def test_the_package_is_pickled_by_name():
    """The roles of a strategy that a notebook defines refer to `lk`, and are sent to other processes."""
    code = "import cloudpickle, labkit; assert cloudpickle.loads(cloudpickle.dumps(labkit)) is labkit"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stderr) == (0, "")
