"""Mutants of the reference notebooks' solutions: one small change each, as students make them.

`folded(source, values)` is a solution as a student of one variant writes it: `V[...]` and values that depend on it are computed.
`mutants(source)` are (description, source) pairs: comparisons and operators swapped, numbers one off, statements, conditions and
copies left out, arguments, elements and branches exchanged, one name for another. The fields of a class are not changed: these
lines are given to students.
`Checks(reference)` runs the checks of a reference notebook with such answers.
"""

import ast
import contextlib
import copy
import functools
import io
import itertools
import json
import os
import signal
from pathlib import Path

from labkit.course.schema import parse
from labkit.course.variants import with_variant

REFERENCES = Path(__file__).parent / "reference_notebooks"

KINDS = ("given", "locked", "variant", "test", "solution")  # of cells that are run
SECONDS = 1  # of processor time, after which a mutant's loop counts as endless
ENOUGH = 60  # the same for a right answer, which takes less than 1
LONGEST = 600  # seconds, for a process that waits


class Fold(ast.NodeTransformer):
    """Computes what depends on the variant only."""

    def __init__(self, values):
        self.values = values

    def visit_Subscript(self, node):
        self.generic_visit(node)
        if isinstance(node.value, ast.Name) and node.value.id == "V":
            return ast.Constant(self.values[node.slice.value])
        if isinstance(node.value, ast.Dict) and isinstance(node.slice, ast.Constant):
            keys = [key.value for key in node.value.keys]
            return node.value.values[keys.index(node.slice.value)]
        return node

    def visit_Compare(self, node):
        self.generic_visit(node)
        if isinstance(node.left, ast.Constant) and isinstance(node.comparators[0], ast.Constant):
            return ast.Constant(bool(eval(ast.unparse(node))))
        return node

    def visit_IfExp(self, node):
        self.generic_visit(node)
        return (node.body if node.test.value else node.orelse) if isinstance(node.test, ast.Constant) else node

    def visit_BoolOp(self, node):
        self.generic_visit(node)
        if isinstance(node.op, ast.And):
            if any(isinstance(v, ast.Constant) and not v.value for v in node.values):
                return ast.Constant(False)
            left = [v for v in node.values if not isinstance(v, ast.Constant)]
            return left[0] if len(left) == 1 else ast.BoolOp(node.op, left)
        return node

    def visit_If(self, node):
        self.generic_visit(node)
        if isinstance(node.test, ast.Constant):
            return node.body if node.test.value else node.orelse
        return node

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Constant) and node.right.value in (1, 1.0):
            return node.left
        if isinstance(node.op, ast.Div) and isinstance(node.right, ast.Constant) and node.right.value in (1, 1.0):
            return node.left
        if isinstance(node.op, ast.Sub) and isinstance(node.right, ast.Constant) and node.right.value is False:
            return node.left
        if isinstance(node.op, ast.Mult) and isinstance(node.left, ast.Constant) and node.left.value == 1:
            return node.right
        if isinstance(node.op, ast.Mod) and isinstance(node.right, ast.Constant) and node.right.value == 1:
            return ast.Constant(0)
        return node

    def visit_AugAssign(self, node):
        self.generic_visit(node)
        if isinstance(node.op, ast.Mult) and isinstance(node.value, ast.Constant) and node.value.value in (1, 1.0):
            return None
        return node


def folded(source, values):
    """The source with the values of one variant in it, without what is then never reached or never used."""
    tree = Fold(values).visit(ast.parse(source))
    for function in [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]:
        _put_in_ones(function)
    tree = Fold(values).visit(tree)
    for function in [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]:
        ends = [i for i, statement in enumerate(function.body) if isinstance(statement, ast.Return)]
        del function.body[min(ends, default=len(function.body)) + 1 :]
        used = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
        for block in [n.body for n in ast.walk(function) if isinstance(getattr(n, "body", None), list)]:
            block[:] = [s for s in block if not (isinstance(s, ast.Assign) and _unused(s.targets, used))]
            for statement in block:
                _without_unused(statement, used)
    return ast.unparse(ast.fix_missing_locations(tree))


def _put_in_ones(function):
    """Replace a name by 1 where that is the only value that it gets."""
    stored = [n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    for statement in [n for n in ast.walk(function) if isinstance(n, ast.Assign)]:
        name, value = statement.targets[0], statement.value
        if (
            isinstance(name, ast.Name)
            and isinstance(value, ast.Constant)
            and value.value == 1
            and stored.count(name.id) == 1
        ):
            for use in [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == name.id]:
                if isinstance(use.ctx, ast.Load):
                    _replace(function, use, ast.Constant(value.value))


def _without_unused(statement, used):
    """Leave out what `a, b = x, y` assigns to names that are not used."""
    if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple)):
        return
    (target,) = statement.targets
    kept = [pair for pair in zip(target.elts, statement.value.elts, strict=True) if not _unused([pair[0]], used)]
    if len(kept) == 1:
        target, statement.value = kept[0]
        statement.targets = [target]


def _unused(targets, used):
    names = [name for target in targets for name in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return all(isinstance(name, ast.Name) and name.id not in used for name in names)


COMPARISONS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
               ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}  # fmt: skip
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Add,
             ast.Pow: ast.Mult, ast.MatMult: ast.Mult}  # fmt: skip


EITHER_WAY = ("min", "max", "np.maximum", "np.minimum", "np.logaddexp", "ctx.inbox")  # of arguments in any order
LEFT_OUT = ("len", "sum", "sorted", "max", "min", "np.array", "list")  # around their only argument


@functools.cache  # variants have many answers in common
def mutants(source):
    """(description, source) of every mutant; two of the same source are one."""
    found = {}
    total = len(list(ast.walk(ast.parse(source))))
    original = ast.unparse(ast.parse(source))
    given = _given(ast.parse(source))
    for index in range(total):
        for number in itertools.count():
            tree = ast.parse(source)
            nodes = list(ast.walk(tree))
            changes = () if index in given else _changes(nodes[index], tree)
            what, change = next(itertools.islice(changes, number, None), (None, None))
            if change is None:
                break
            line = getattr(nodes[index], "lineno", 0)
            change()
            try:
                text = ast.unparse(ast.fix_missing_locations(tree))
                compile(text, "<mutant>", "exec")
            except (SyntaxError, ValueError):
                continue
            if text != original:
                found.setdefault(text, f"line {line}: {what}")
    return [(what, text) for text, what in found.items()]


def _given(tree):
    """Places, in the order of `ast.walk`, of the fields of classes and what they consist of."""
    fields = [field for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for field in node.body
              if isinstance(field, ast.Assign | ast.AnnAssign)]  # fmt: skip
    inside = {id(part) for field in fields for part in ast.walk(field)}
    return {place for place, node in enumerate(ast.walk(tree)) if id(node) in inside}


def _changes(node, tree):
    """(description, function that makes it) of every change of one node."""

    def put(name, value):
        return lambda: setattr(node, name, value)

    if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARISONS:
        other = COMPARISONS[type(node.ops[0])]()
        yield f"{ast.unparse(node)} with {type(other).__name__}", put("ops", [other])
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPERATORS:
        yield f"{ast.unparse(node)} with {OPERATORS[type(node.op)].__name__}", put("op", OPERATORS[type(node.op)]())
        if isinstance(node, ast.BinOp):
            yield f"{ast.unparse(node)}: only the left side", lambda: _replace(tree, node, node.left)
            if not isinstance(node.op, ast.Add | ast.Mult):
                yield (
                    f"{ast.unparse(node)}: sides exchanged",
                    lambda: node.__dict__.update(left=node.right, right=node.left),
                )
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        for value in (node.value + 1, node.value - 1):
            yield f"{node.value} becomes {value}", put("value", value)
    if isinstance(node, ast.Constant) and node.value in ("forward", "mean"):
        yield f"another word than {node.value!r}", put("value", {"forward": "backward", "mean": "sum"}[node.value])
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield f"if {ast.unparse(node.test)}: always", put("test", ast.Constant(True))
        yield f"if {ast.unparse(node.test)}: never", put("test", ast.Constant(False))
    if isinstance(node, ast.Call):
        if len(node.args) > 1 and ast.unparse(node.func) not in EITHER_WAY:
            swapped = [node.args[1], node.args[0], *node.args[2:]]
            yield f"{ast.unparse(node)}: arguments exchanged", put("args", swapped)
        if len(node.args) > 1 and not any(isinstance(a, ast.Starred) for a in node.args):
            yield f"{ast.unparse(node)}: last argument left out", put("args", node.args[:-1])
        if isinstance(node.func, ast.Name) and node.func.id in ("max", "min"):
            other = {"max": "min", "min": "max"}[node.func.id]
            yield f"{ast.unparse(node)}: the other of max and min", put("func", ast.Name(other))
        if ast.unparse(node.func) in LEFT_OUT and len(node.args) == 1:
            yield f"{ast.unparse(node)}: {ast.unparse(node.func)} left out", lambda: _replace(tree, node, node.args[0])
        if ast.unparse(node.func) == "range":
            last = node.args[-1]
            for op in (ast.Add(), ast.Sub()):
                longer = [*node.args[:-1], ast.BinOp(last, op, ast.Constant(1))]
                yield (
                    f"{ast.unparse(node)}: {'longer' if isinstance(op, ast.Add) else 'shorter'} by one",
                    put("args", longer),
                )
        for i in range(len(node.keywords)):
            kept = node.keywords[:i] + node.keywords[i + 1 :]
            yield f"{ast.unparse(node)}: without {node.keywords[i].arg}", put("keywords", kept)
    if isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield f"{ast.unparse(node)} with {type(other).__name__}", put("op", other)
        for value in node.values:
            yield f"{ast.unparse(node)}: only `{ast.unparse(value)}`", lambda value=value: _replace(tree, node, value)
    if isinstance(node, ast.UnaryOp):
        yield f"{ast.unparse(node)}: without {type(node.op).__name__}", lambda: _replace(tree, node, node.operand)
    if isinstance(node, ast.AugAssign):
        yield (
            f"`{ast.unparse(node)}`: only assigned",
            lambda: _replace(tree, node, ast.Assign([node.target], node.value)),
        )
    if isinstance(node, ast.Continue):
        yield "break for continue", lambda: _replace(tree, node, ast.Break())
    if isinstance(node, ast.Break):
        yield "continue for break", lambda: _replace(tree, node, ast.Continue())
    if isinstance(node, ast.Tuple | ast.List) and isinstance(node.ctx, ast.Load) and len(node.elts) > 1:
        for i in range(len(node.elts) - 1):
            turned = [*node.elts[:i], node.elts[i + 1], node.elts[i], *node.elts[i + 2 :]]
            yield f"{ast.unparse(node)}: elements {i} and {i + 1} exchanged", put("elts", turned)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        names = sorted({n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)})
        names += [a.arg for a in node.args.args if a.arg not in ("self", "ctx", "model", "shard", "replica")]
        for use in [
            n for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in names
        ]:
            other = names[(names.index(use.id) + 1) % len(names)]
            if other != use.id:
                yield (
                    f"{other} for {use.id} in line {use.lineno}, column {use.col_offset}",
                    (lambda use=use, other=other: setattr(use, "id", other)),
                )
    for name in ("body", "orelse"):
        block = getattr(node, name, None)
        if not isinstance(block, list) or isinstance(node, ast.Module | ast.ClassDef):
            continue
        for i, statement in enumerate(block):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue
            rest = [*block[:i], *block[i + 1 :]] or [ast.Pass()]
            yield f"without `{ast.unparse(statement).splitlines()[0]}` in line {statement.lineno}", put(name, rest)
            if i + 1 < len(block):
                turned = [*block[:i], block[i + 1], statement, *block[i + 2 :]]
                first, second = (ast.unparse(part).splitlines()[0] for part in turned[i : i + 2])
                yield f"`{first}` before `{second}`", put(name, turned)


def _replace(tree, old, new):
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list) and old in value:
                value[value.index(old)] = new


class Checks:
    """The checks of a reference notebook, hidden ones included, run with other answers.

    `before(cell)` runs the cells before a solution in this process, once; `accept(source)` forks a process for each answer, in
    which that solution and the cells after it run.
    """

    def __init__(self, reference):
        self.cells = [cell for cell in reference.cells if cell.kind in KINDS]
        self.outputs = {}  # of the checks, for the reference's own answers
        _run(self.cells, {"__name__": "notebook"}, self.outputs)
        self.before(next(cell.id for cell in self.cells if cell.kind == "solution"))

    def before(self, cell):
        """Run the cells before this solution."""
        self.place = [c.id for c in self.cells].index(cell)
        self.names = {"__name__": "notebook"}
        _run(self.cells[: self.place], self.names, {})

    def accept(self, source, seconds=SECONDS):
        """Return whether the checks pass if `source` is the answer; a process that takes longer is ended."""
        process = os.fork()
        if process == 0:
            accepted = False
            try:
                signal.setitimer(signal.ITIMER_VIRTUAL, seconds)  # the signals end the process
                signal.alarm(LONGEST)
                accepted = self._passed(source)
            finally:
                os._exit(0 if accepted else 1)
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0

    def _passed(self, source):
        found = {}
        try:
            exec(compile(source, "<answer>", "exec"), self.names)
            for cell in self.cells[self.place + 1 :]:
                _run([cell], self.names, found)
                if cell.id in found and found[cell.id] != self.outputs[cell.id]:
                    return False
        except Exception:
            return False
        return True


def _run(cells, names, outputs):
    """Run cells, and add what the checks print to `outputs`."""
    for cell in cells:
        stdout = io.StringIO()
        with contextlib.redirect_stdout(stdout):
            exec(compile(cell.source, f"<{cell.id}>", "exec"), names)
        if cell.kind == "test":
            outputs[cell.id] = stdout.getvalue()


def combinations(reference):
    """Variants in which every choice of the reference notebook's occurs."""
    most = max(len(choices) for choices in reference.variants.values())
    return [
        {key: choices[i % len(choices)]["value"] for key, choices in reference.variants.items()} for i in range(most)
    ]


def drawn(name):
    """(reference notebook, its values) of an assignment in variants in which every choice occurs."""
    notebook = json.loads(next(REFERENCES.glob(f"{name}*")).read_text())
    for values in combinations(parse(notebook, name)):
        yield with_variant(parse(in_variant(notebook, values), name), None), values


def in_variant(notebook, values):
    """The JSON of a reference notebook whose choices are `values`."""
    made = copy.deepcopy(notebook)
    variants = made["metadata"]["labkit"]["variants"]
    for key, choices in variants.items():
        variants[key] = [choice for choice in choices if choice["value"] == values[key]]
    for cell in made["cells"]:
        if cell["metadata"].get("labkit", {}).get("variant"):
            cell["source"] = f"V = {values!r}"
    return made
