"""Imports go one way, heavy packages are imported lazily or not at all, and modules have no mutable state."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "labkit"
FILES = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.rglob("*.py"))}

# What each package may import of the others, besides itself and `FOR_ALL`.
FOR_ALL = {"description", "errors", "files", "formats", "formatting", "options", "paths", "random_streams", "table"}
FOR_ALL |= {"content_digest", "encoding", "interrupts", "packed", "plain_values"}
BELOW = {
    **{name: set() for name in FOR_ALL},
    "nn": set(),
    "data": set(),
    "trace": set(),
    "models": {"nn"},
    "problem": {"nn", "data", "models"},
    "confusion": {"views"},
    "predictor": {"nn", "data", "models", "problem", "confusion"},
    "serving": {"predictor"},
    "summary": {"trace"},
    "roles": {"nn", "data", "trace", "problem"},
    "strategies": {"nn", "data", "trace", "problem", "roles"},
    "engines": {"nn", "data", "trace", "models", "problem", "roles"},
    "views": {"trace"},
    "narrative": {"trace", "summary"},
}  # fmt: skip
BELOW["serialization"] = BELOW["engines"] | {"engines", "strategies"}
BELOW["spec"] = BELOW["serialization"] | {"serialization"}
BELOW["manifest"] = BELOW["spec"] | {"spec"}
BELOW["progress"] = {"engines", "narrative", "trace"}
BELOW["run"] = BELOW["manifest"] | {"manifest", "predictor", "serving", "summary", "narrative", "progress"}
BELOW["resume"] = BELOW["run"] | {"run"}
BELOW["forecasts"] = BELOW["run"] | {"run", "views"}
UP = BELOW["forecasts"] | {"forecasts"}
BELOW |= {"lab": UP, "cli": UP | {"lab", "course"}, "__init__": set(), "__main__": {"cli"}}
# Families of public names
BELOW |= {"codecs": {"nn"}, "schedules": {"nn"}, "partitions": {"data"}}
BELOW |= {"distributions": BELOW["engines"] | {"engines"}, "placements": BELOW["roles"] | {"roles"}}
# What only lessons, documents and course work use; no other package imports it.
BELOW |= {"lessons": {"nn", "trace", "views"}, "course": UP | {"lab", "lessons"}}

# The one exception upwards: `Run.watch` and `Run.plot` import the lab and the views when they are called, and `train` in a
# notebook the registry of cells.
EXCEPTIONS = {("run.py", "lab"), ("run.py", "views")}


def part(file):
    return file.split("/")[0].removesuffix(".py")


@functools.cache
def parsed(file):
    return ast.parse(FILES[file].read_text())


def statements(body, late=False):
    """(statement, whether it is in a function) of a module, without those for type checkers only."""
    for node in body:
        yield node, late
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        inside = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for block in ("body", "orelse", "handlers", "finalbody", "cases"):
            yield from statements(getattr(node, block, ()), inside)


@functools.cache
def imports(file):
    """(module as an absolute name, line, whether it is at the top of the module) of everything imported in a file."""
    package = ("labkit", *file.split("/")[:-1])
    found = []
    for node, late in statements(parsed(file).body):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif not isinstance(node, ast.ImportFrom):
            continue
        elif node.level:
            base = package[: len(package) - node.level + 1]
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [module] if node.module else [f"{module}.{alias.name}" for alias in node.names]
        else:
            names = [node.module]
        found.extend((name, node.lineno, not late) for name in names)
    return found


def imported(inside, prefix=""):
    """(file, imported module, "file:line imports module", at top) of all files in a folder; it has some."""
    files = [file for file in FILES if file.startswith(inside)]
    assert len(files) > 40
    return [
        (file, name, f"{file}:{line} imports {name}", at_top)
        for file in files
        for name, line, at_top in imports(file)
        if name.startswith(prefix)
    ]


def test_every_file_belongs_to_a_part():
    assert {part(file) for file in FILES} <= set(BELOW)


# What student code has in place of labkit's classes
STAND_INS = {"Batch", "ServerStrategy", "Strategy"}


def test_no_two_classes_have_the_same_name():
    places = {}
    for file in FILES:
        for node in ast.walk(parsed(file)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(f"{file}:{node.lineno}")
    repeated = {name: where for name, where in places.items() if len(where) > 1 and not name.startswith("_")}
    assert repeated.keys() == STAND_INS, repeated


def test_imports_go_one_way():
    violations = []
    for file, name, where, _ in imported("", "labkit."):
        mine, other = part(file), name.split(".")[1]
        allowed = {mine} | FOR_ALL | BELOW[mine]
        if other not in allowed and (FILES[file].name, other) not in EXCEPTIONS:
            violations.append(f"{where}; {mine} may use {sorted(BELOW[mine])}")
    assert not violations, "\n".join(violations)


# The packages of the Dask engine: each imports from itself, from those before it, and from modules for all of them. These
# import from none of them; of these, the transport uses two.
LAYERS = ["transport", "worker", "cluster", "client"]
FOR_ALL_LAYERS = {"dask_private", "failure_detector", "processes", "protocol", "requests", "stages", "timeouts"}
FOR_TRANSPORT = {"protocol", "timeouts"}
MAKES_RUNS = ("dask_cluster.py", "client")  # `DaskCluster.start` makes a run, which is above it, when it is called


def test_packages_of_the_dask_engine_are_layers():
    places = [(file, file.split("/")[2], FILES[file].name) for file in FILES if file.startswith("engines/dask/")]
    known = {f"{name}.py" for name in ("__init__", *FOR_ALL_LAYERS)}
    violations = [f"{file} is in no layer" for file, mine, name in places if mine not in LAYERS and name not in known]
    for file, name, where, _ in imported("engines/dask/", "labkit.engines.dask."):
        mine, other = file.split("/")[2], name.split(".")[3]
        if other not in LAYERS:
            right = other in (FOR_TRANSPORT if mine == "transport" else FOR_ALL_LAYERS)
        elif (FILES[file].name, other) == MAKES_RUNS or FILES[file].name == "__init__.py":
            right = True
        else:
            right = mine in LAYERS and LAYERS.index(other) <= LAYERS.index(mine)
        if not right:
            violations.append(where)
    assert not violations, "\n".join(violations)


PURE = {"labkit", "__future__", "collections", "dataclasses", "enum", "types", "typing"}


def test_parts_of_the_recovery_policy_perform_no_io_and_do_not_know_each_other():
    package, violations = "engines/dask/client/recovery_policy", []
    for file, name, where, _ in imported("engines/dask/"):
        if file.startswith(package):
            sibling = f"labkit/{package}" == "/".join(name.split(".")[:5]) and not name.endswith(".actions")
            part_of_it = FILES[file].name not in ("__init__.py", "policy.py")
            if name.split(".")[0] not in PURE or (sibling and part_of_it):
                violations.append(where)
    assert not violations, "\n".join(violations)


# The modules of forecasts, from bottom to top: each imports only from those before it.
FORECASTS = ["arguments", "sweeps", "steady_state", "calibration", "forecast", "forecaster", "advice"]


def test_modules_of_forecasts_are_layers():
    violations = []
    for file, name, where, _ in imported("", "labkit.forecasts."):
        mine, other = file.split("/")[1].removesuffix(".py") if part(file) == "forecasts" else None, name.split(".")[2]
        if mine is not None and FORECASTS.index(other) > FORECASTS.index(mine):
            violations.append(where)
    assert not violations, "\n".join(violations)


# The packages of course work: each imports from itself, from those before it, and from the modules beside them, which import
# from no package.
COURSE = ["sandbox", "grading", "authoring"]


def test_packages_of_course_work_are_layers():
    violations = []
    for file, name, where, _ in imported("course/", "labkit.course."):
        mine, other = file.split("/")[-2], name.split(".")[2]
        below = COURSE[: COURSE.index(mine) + 1] if mine in COURSE else []
        if other in COURSE and other not in below:
            violations.append(where)
    assert not violations, "\n".join(violations)


HEAVY = {
    "distributed": {"engines"},
    "dask": {"engines", "data"},
    "tornado": {"engines"},
    "matplotlib": {"views", "lab", "lessons", "cli"},
    "ipywidgets": {"lab"},
    "anywidget": {"lab"},
    "IPython": {"lab", "progress"},
    "PIL": {"views", "lab"},
    "click": {"cli"},
    "rich": {"cli", "progress"},
    "pandas": {"trace", "data", "forecasts"},
    "sklearn": set(),
    "scipy": set(),
    "cloudpickle": {"packed"},
    "torch": {"models"},
}


def test_heavy_packages_are_imported_only_where_allowed():
    violations = []
    for file, name, where, at_top in imported(""):
        package = name.split(".")[0]
        if package in HEAVY and part(file) not in HEAVY[package]:
            violations.append(where)
        elif at_top and package in ("dask", "distributed") and "dask" not in file.split("/"):
            violations.append(f"{where} at the top: it is imported when it is needed")
        elif at_top and package == "pandas":
            violations.append(f"{where} at the top, and pandas is optional")
    assert not violations, "\n".join(violations)


@pytest.mark.parametrize(
    ("code", "never"),
    [
        ("import labkit", {"numpy", "torch", "distributed", "dask", "matplotlib", "ipywidgets", "anywidget", "click", "pandas"}),
        ("import labkit as lk; lk.SimulatedCluster, lk.AsyncPS, lk.train, lk.Problem, lk.Budget",
         {"distributed", "dask", "matplotlib", "ipywidgets", "anywidget", "click", "pandas", "sklearn", "scipy"}),
        ("import labkit.engines.simulated", {"distributed", "dask", "matplotlib", "ipywidgets", "anywidget"}),
        ("import labkit as lk; lk.train(lk.Problem('digits'), lk.SyncPS(), lk.SimulatedCluster(workers=2), "
         "lk.Budget(updates=2)).wait().summary()",
         {"distributed", "dask", "matplotlib", "ipywidgets", "anywidget", "sklearn", "scipy", "torch"}),
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
    ("lab/cells.py", "_open"),  # the registry of what cells have made: running a cell again closes its labs,
    ("lab/cells.py", "_going"),  # and ends its runs
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


def test_modules_hold_no_state_that_changes():
    violations = []
    for file in FILES:
        changed = changed_names(parsed(file))
        for node in parsed(file).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            value = getattr(node, "value", None)
            mutable = isinstance(value, ast.Dict | ast.List | ast.Set | ast.DictComp | ast.ListComp | ast.SetComp) or (
                isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] in MAKERS
            )
            for target in targets:
                name = target.id if isinstance(target, ast.Name) else "__all__"
                known = name == "__all__" or (file, name) in ALLOWED
                if not known and name in changed and (mutable or isinstance(value, ast.Constant)):
                    violations.append(f"{file}:{node.lineno}: {name} changes while the program runs")
    assert not violations, "\n".join(violations)


def test_the_package_is_pickled_by_name():
    """The roles of a strategy that a notebook defines refer to `lk`, and are sent to other processes."""
    code = "import cloudpickle, labkit; assert cloudpickle.loads(cloudpickle.dumps(labkit)) is labkit"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stderr) == (0, "")
