"""Every file that labkit reads, damaged in every way: it is refused with a sentence that names file and field, or read whole.

`FORMATS` is the table of the formats. Each entry writes an intact file, loads it and uses what was loaded, and takes its contents
apart (`unpack`) and puts changed ones together again with right checksums (`pack`).
"""

import functools
import io
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import numpy as np
import pytest

import labkit as lk
from labkit.course.authoring.release import release
from labkit.course.bundle import read_bundle, write_release
from labkit.course.grading.answers import Answers
from labkit.course.grading.journal import Journal
from labkit.course.grading.lms import Student
from labkit.course.grading.scores import Result, zero_scores
from labkit.course.grading.submissions import Submission
from labkit.course.schema import parse
from labkit.engines.dask.client.resume import resumed_states
from labkit.engines.plan import copied_shard, make_plan
from labkit.engines.storage.checkpoint_format import decode_state
from labkit.engines.storage.journal import write_json
from labkit.engines.storage.store import Store
from labkit.lab.settings import Settings
from labkit.lab.share_text import read_share_text, share_text
from labkit.nn import SparseParameters
from tests.course import toy_reference as toy
from tests.nested_values import changed, places

MOONS = lk.Problem("moons", hidden=(3,), batch_size=4, options={"samples": 60}, seed=3)
HUGE = 10**400
VALUES = (None, True, -1, 0.5, "x", [], {}, HUGE, float("nan"), [[]], {"x": [1]})


@dataclass(frozen=True)
class Format:
    """`write(folder)` returns the file. `load(path)` loads it and uses it. `unpack(path)` returns plain values and arrays,
    `pack(path, contents)` writes them.
    """

    write: Callable[[Path], Path]
    load: Callable[[Path], object]
    unpack: Callable[[Path], Any]
    pack: Callable[[Path, Any], object]
    checked: bool = True  # with checksums
    names_file: bool = True
    names_field: bool = True


def trained(**more):
    cluster = lk.SimulatedCluster(workers=2, compute=lk.distributions.Exponential(0.05), slow={"worker-1": 2.0})
    faults = [lk.Kill("worker-1", at=0.3), lk.Slow("worker-0", 3, during=(0.1, 0.2))]
    return lk.train(MOONS, lk.AsyncPS(optimizer="momentum:0.9"), cluster, lk.Budget(seconds=1.0), faults=faults, **more)


# trace, model: .npz ---------------------------------------------------------------------------------------------------


def unpack_npz(path):
    with np.load(path) as file:
        found = {name: file[name] for name in file.files}
    texts = [name for name, values in found.items() if values.dtype == np.uint8 and name in JSON]
    return found | {name: json.loads(found[name].tobytes()) for name in texts}


JSON = ("about", "header", "events", "counters", "ending")


def pack_npz(path, contents):
    members = {
        name: np.frombuffer(json.dumps(value).encode(), np.uint8) if name in JSON else value
        for name, value in contents.items()
    }
    with open(path, "wb") as file:
        np.savez(file, **members)


def use_trace(path):
    trace = lk.load_npz(path)
    repr(trace), trace._repr_html_()
    lk.ledger(trace), lk.to_frames(trace)
    lk.to_perfetto(trace, path.with_suffix(".json"))
    lk.save_npz(trace, path.with_suffix(".again"))


def use_model(path):
    model = lk.load(path)
    repr(model), model._repr_html_()
    try:
        model.predict(np.zeros((1, model.network.inputs)))
    except lk.BadInput as error:  # allowed numbers may overflow
        if "predict: sample" not in str(error):
            raise
    model.save(path.with_suffix(".again"))


# the files of a run ---------------------------------------------------------------------------------------------------


def write_run(folder, name):
    trained(checkpoint=folder).advance(0.25).slow("worker-0", 2).advance(0.1)
    return folder / name


def use_run(path):
    run = lk.resume(path.parent, timeout=1.0)
    run.advance(0.01)


def unpack_run(path):
    return json.loads(path.read_text())["said"]


def pack_run(path, contents):
    write_json(Store(path.parent), path.name, contents)


def use_reached(path):
    """A damaged file of the progress loses no command, and the log says what was done instead."""
    run = lk.resume(path.parent, timeout=1.0)
    if "reached.json" in str(run.log):
        assert run.engine.seconds == 0.3
        raise lk.BadInput(str(run.log))


# a checkpoint ---------------------------------------------------------------------------------------------------------

SPARSE = lk.Problem("clicks", hidden=(2,), batch_size=4, options={"rows": 40})


def plan_of(kind):
    problem, strategy = (
        (SPARSE, lk.SparsePS(dense="server")) if kind == "rows" else (MOONS, lk.AsyncPS(optimizer="momentum:0.9"))
    )
    return make_plan(problem, strategy, lk.SimulatedCluster(workers=2, servers=1).spec, lk.Budget(updates=9))


def write_checkpoint(folder, kind):
    plan = plan_of(kind)
    shard = copied_shard(plan, plan.layout.roles[0], lambda: 0, plan.problem.objective(), plan.strategy)
    state = shard.to_state() | {
        "version": 4,
        "last": [["worker-0", 0, 3]],
        "applied": [[1, 4, 3]],
        "rounds_by_incarnation": [[0, 2]],
        "dropped": [["worker-1", 0, [1]]],
        "unreported_drops": [[0, 5, 1, 0, 1, 1, 0]],
    }
    if kind == "rows":
        shard.parameters.table.slots(np.arange(3))
        state |= shard.parameters.arrays()
    store = Store(folder)
    if kind == "chief":
        values = plan.problem.objective().start(0)
        held = [[0, json.dumps({"applied": []})]]
        store.write(
            "chief",
            {"parameters": values, "update": 4, "samples": 16, "loss": 0.5, "accuracy": None, "contained": held},
            4,
        )
    else:
        store.write("server-0", state, 4)
    return next(folder.iterdir())


def use_checkpoint(path, kind):
    states, notes = resumed_states(plan := plan_of(kind), Store(path.parent))
    if notes:
        raise lk.BadInput(notes[0])
    if kind != "chief":
        state = dict(states["server-0"][0])
        shard = copied_shard(plan, plan.layout.roles[0], lambda: 0, plan.problem.objective(), plan.strategy)
        shard.restore(state)
        shard.to_state()


def unpack_checkpoint(path):
    return decode_state(path.read_bytes())["state"]


def pack_checkpoint(path, contents):
    store, name = Store(path.parent), path.name.split(".")[0]
    store.write(name, contents, 4)


def checkpoint(kind):
    return Format(
        functools.partial(write_checkpoint, kind=kind), functools.partial(use_checkpoint, kind=kind), unpack_checkpoint,
        pack_checkpoint,
    )  # fmt: skip


# others ---------------------------------------------------------------------------------------------------------------


def unpack_json(path):
    return json.loads(path.read_text())


def pack_json(path, contents):
    path.write_text(json.dumps(contents))


def unpack_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def pack_lines(path, contents):
    path.write_text("".join(json.dumps(line) + "\n" for line in contents))


def write_calibration(folder):
    costs = lk.Costs(
        lk.WorkCost(1e-3), lk.distributions.Measured((0.9, 1.1)),
        send=lk.Linear(2e-5), receive=lk.Linear(3e-5), wake=((0.01, 1e-4),), cold=((1e6, 0.1),), speeds=(1.0, 0.5),
    )  # fmt: skip
    measured = {"latency": 1e-4, "bandwidth": 1e9, "repeatability": {"gradient": 0.1}, "doubts": ("a doubt",)}
    made = lk.Calibration(
        costs, "moons", (50, 4, 200), 20, (1, 100), (1, 8), **measured, pace=lk.distributions.Exponential(0.1)
    )
    return made.save(folder / "calibration.json")


def use_calibration(path):
    calibration = lk.Calibration.load(path)
    str(calibration), calibration.constants(), calibration._repr_html_()
    calibration.cluster(workers=2), lk.Calibration.from_dict(calibration.to_dict())


def write_sweep(folder):
    path = folder / "sweep.jsonl"
    strategies = [lk.AsyncPS(learning_rate=rate) for rate in (0.1, 0.2)]
    cluster, budget = lk.SimulatedCluster(workers=2, compute=0.1), lk.Budget(updates=4)
    lk.sweep(MOONS, strategies, cluster, budget, seeds=2, path=path, progress=False)
    return path


def use_sweep(path):
    sweep = lk.Sweep.load(path)
    repr(sweep), sweep.table(), sweep.to_csv(path.with_suffix(".csv"))


def write_share_text(folder):
    made = Settings().changed(
        strategy="ssp", s=5, workers=8, pace=0.2, slow={"worker-2": 5}, data="spirals", seconds=7.5
    )
    (folder / "share.txt").write_text(share_text(made))
    return folder / "share.txt"


def write_bundle(folder):
    made = release(parse(toy.notebook(), "toy"), "first")
    points = {"q1": {"points": 2, "hidden": 1, "partly": 0, "by hand": 0}}
    return write_release(folder, made, {"q1-test": [{"output_type": "stream", "text": "x"}]}, points)[1]


def use_bundle(path):
    bundle = read_bundle(path)
    bundle.base.questions(), bundle.base.markers(), sum(row["points"] for row in bundle.points.values())


SUBMISSION = Submission("ada.ipynb", Student("ada", "1", "moodle"), Answers({"q3": "7"}))


def write_grades(folder):
    base = parse(toy.notebook(), "toy")
    with Journal(folder / "journal", "m") as journal:
        journal.add(SUBMISSION, Result(SUBMISSION.student, SUBMISSION.path, zero_scores(base), ("late",)))
    return folder / "journal"


def use_grades(path):
    with Journal(path, "m") as journal:
        found = journal.find(SUBMISSION)
    if found is not None:
        json.dumps(found.as_json()), [question.hints for question in found.questions]


def write_csv(folder):
    (folder / "data.csv").write_text("length,width,kind\n" + "5.1,3.5,setosa\n6.2,3.4,virginica\n5.9,3,virginica\n" * 4)
    return folder / "data.csv"


def unpack_csv(path):
    return [line.split(",") for line in path.read_text().splitlines()]


def pack_csv(path, contents):
    cells = [
        line if isinstance(line, list) else [line] for line in (contents if isinstance(contents, list) else [contents])
    ]
    path.write_text("\n".join(",".join(map(plain_text, line)) for line in cells))


def plain_text(value):
    return str(value) if not isinstance(value, int) or value < 1e9 else "9" * 400


def pack_pairs(path, contents):
    path.write_text(urlencode({name: plain_text(value) for name, value in contents.items()}, safe=":,"))


FORMATS = {
    "trace": Format(lambda folder: lk.save_npz(trained().wait().trace, folder / "run.npz"), use_trace, unpack_npz, pack_npz),
    "model": Format(lambda folder: trained().wait().result().save(folder / "m.npz"), use_model, unpack_npz, pack_npz),
    "run.json": Format(functools.partial(write_run, name="run.json"), use_run, unpack_run, pack_run),
    "commands.json": Format(functools.partial(write_run, name="commands.json"), use_run, unpack_run, pack_run),
    "reached.json": Format(functools.partial(write_run, name="reached.json"), use_reached, unpack_run, pack_run),
    **{f"checkpoint of {kind}": checkpoint(kind) for kind in ("server", "rows", "chief")},
    "calibration": Format(write_calibration, use_calibration, unpack_json, pack_json, checked=False),
    "sweep": Format(write_sweep, use_sweep, unpack_lines, pack_lines, checked=False),
    "share text": Format(
        write_share_text, lambda path: read_share_text(path.read_text(errors="replace")),
        lambda path: dict(parse_qsl(path.read_text())), pack_pairs, names_file=False, checked=False,
    ),
    "bundle": Format(write_bundle, use_bundle, unpack_json, pack_json, checked=False),
    "grades": Format(write_grades, use_grades, unpack_lines, pack_lines, checked=False, names_field=False),
    "CSV": Format(write_csv, lambda path: lk.from_csv(path, test_fraction=0.3), unpack_csv, pack_csv, checked=False),
}  # fmt: skip


# changes --------------------------------------------------------------------------------------------------------------


def arrays_like(values):
    """Arrays that differ from `values` in dtype, shape or contents."""
    yield "strings", values.astype("U3")
    yield "another type", values.astype(np.float32 if values.dtype != np.float32 else np.float64)
    yield "one more axis", values[None]
    yield "no axis", np.zeros((), values.dtype)
    yield (
        "one more",
        np.concatenate([values, values[-1:]]) if len(values) else np.zeros((1, *values.shape[1:]), values.dtype),
    )
    yield "empty", values[:0]
    yield "huge", np.full_like(values, np.iinfo(values.dtype).max if values.dtype.kind in "iu" else np.inf)
    if values.dtype.kind == "f":
        yield "nan", np.full_like(values, np.nan)


# {field: what the message names instead, because only together they are wrong}
ALSO = {
    "labkit_calibration": "format", "labkit_sweep": "format",
    "blocks": "params", "inputs": "params", "outputs": "params", "ids": "pulls", "lk": "There is no", "hidden": "shards",
    "cell_type": "cell ", "cells": "cell ", "looks.when": "looks.samples", "nbgrader": "grade", "grade": "points",
    "data": "options",
}  # fmt: skip


def removed(inner, key):
    del inner[key]


def setter(value):
    return lambda inner, key: inner.__setitem__(key, value)


def mutations(contents):
    """Yield (path of a value, what is done, the changed contents): it is removed, or has another type, size or shape."""
    for path in places(contents, most=3):
        value = functools.reduce(lambda inner, key: inner[key], path, contents)
        if isinstance(value, np.ndarray):
            cases = [(what, setter(other)) for what, other in arrays_like(value)]
        else:
            cases = [(f"= {other!r:.20}", setter(other)) for other in VALUES]
        for what, change in [("removed", removed), *cases]:
            yield path, what, functools.partial(changed, contents, path, change)


def refusal(kind, path):
    """The message with which the file is refused; "" if it is read."""
    try:
        kind.load(path)
    except lk.BadInput as error:
        return str(error)
    return ""


def problem_of(kind, path, damage=(), contents=None):
    """None if the damaged file is refused as it should be, or read; else what is wrong.

    `damage`: the path of a damaged value, which the message names. `contents`: what may be read only.
    """
    try:
        text = refusal(kind, path)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if not text:
        return None if contents is None or same(kind.unpack(path), contents) else "it was read with other contents"
    if kind.names_file and path.name not in text and str(path.parent) not in text:
        return f"no file in: {text}"
    keys = [key for key in damage if isinstance(key, str)][-2:]
    names = {name for key in keys for name in (key.rstrip("s"), ALSO.get(key, key))}
    return f"no field in: {text}" if names and kind.names_field and not any(name in text for name in names) else None


def same(a, b):
    """Equal plain values and arrays, to any depth."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, SparseParameters):
        return a.fingerprint() == b.fingerprint()
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


@pytest.fixture(params=FORMATS)
def damaged(request, tmp_path):
    """(format, path of an intact file, its contents)."""
    kind = FORMATS[request.param]
    path = kind.write(tmp_path)
    kind.load(path)
    contents = kind.unpack(path)
    path.unlink()
    kind.pack(path, contents)
    kind.load(path)
    return kind, path, contents


PARTS = 24  # of all mutations; with LABKIT_TESTS=whole all are tried, otherwise one part of each format
SLOW = [pytest.param(part, marks=pytest.mark.slow) for part in range(PARTS)]


@pytest.mark.sample(slow=len(FORMATS))
@pytest.mark.parametrize("part", ["some", *SLOW])
def test_changed_contents_with_right_checksums(damaged, part):
    kind, path, contents = damaged
    every = list(mutations(contents))
    chosen = every[:: max(1, len(every) // 60)] if part == "some" else every[part::PARTS]
    wrong = []
    for place, what, make in chosen:
        try:
            changed_contents = make()
        except TypeError:  # a tuple, which JSON does not have
            continue
        path.unlink(missing_ok=True)
        kind.pack(path, changed_contents)
        if (problem := problem_of(kind, path, place)) is not None:
            wrong.append(f"{place} {what}: {problem:.300}")
    assert not wrong, "\n".join(wrong)


def test_changed_bytes(damaged):
    """A file that is cut off, has a changed byte, or is another file is refused; or its contents are those of before."""
    kind, path, contents = damaged
    whole, wrong = path.read_bytes(), []
    step = max(1, len(whole) // 30)
    cases = {f"{size} bytes": whole[:size] for size in range(0, len(whole), step)}
    cases |= {
        f"byte {at}": whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :] for at in range(0, len(whole), step)
    }
    cases |= {"another file": b"\x89PNG\r\n\x1a\n" + bytes(100), "a zip": b"PK\3\4" + bytes(100), "text": b"hello\n"}
    cases |= {"more": whole + b"\0"}
    for what, data in cases.items():
        path.write_bytes(data)
        if (problem := problem_of(kind, path, contents=contents if kind.checked else None)) is not None:
            wrong.append(f"{what}: {problem:.300}")
    assert not wrong, "\n".join(wrong)


def test_a_missing_file_is_named(tmp_path):
    for name, kind in FORMATS.items():
        if name in ("trace", "model", "calibration", "CSV", "sweep", "bundle", "run.json"):
            path = tmp_path / name / "there-is-none"
            assert problem_of(kind, path) is None
            assert refusal(kind, path), name


# memory ---------------------------------------------------------------------------------------------------------------

LARGE = 1 << 26  # bytes


def write_zeros(path, members, name, dtype, shape, method=zipfile.ZIP_DEFLATED):
    """An .npz file with one array of zeros, which takes a thousandth of its bytes, in place of the array `name`."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for other, values in members.items():
            if other != name:
                data = io.BytesIO()
                np.lib.format.write_array(data, values)
                archive.writestr(f"{other}.npy", data.getvalue(), zipfile.ZIP_STORED)
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
        with archive.open(f"{name}.npy", "w") as member:
            member.write(header.getvalue())
            for _ in range(LARGE >> 20):
                member.write(bytes(1 << 20))


@pytest.mark.parametrize(
    ("kind", "name", "dtype", "shape"),
    [
        ("trace", "table.spans", "<i8", (LARGE // 8,)), ("trace", "table.spans", "<f8", (LARGE // 40, 5)),
        ("trace", "table.norms", "|S8", (LARGE // 8, 1)), ("trace", "about", "<i8", (LARGE // 8,)),
        ("trace", "looks.grid", "|u1", (LARGE,)), ("model", "params", "<f4", (LARGE // 4,)),
        ("model", "array.mean", "<f8", (LARGE // 8,)), ("model", "header", "|u1", (LARGE,)),
    ],
)  # fmt: skip
def test_an_array_is_refused_before_it_is_read(tmp_path, kind, name, dtype, shape):
    path = FORMATS[kind].write(tmp_path)
    with np.load(path) as file:
        members = {member: file[member] for member in file.files}
    write_zeros(path, members, name, dtype, shape)
    assert path.stat().st_size < LARGE / 100
    assert peak_of(lambda: refusal(FORMATS[kind], path)) < 2_000_000


def peak_of(call):
    """The most memory (bytes) that was allocated at once during a call that returns a true value."""
    call()  # modules are loaded
    tracemalloc.start()
    try:
        assert call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_array_of_one_number_everywhere_is_refused_before_it_is_copied(tmp_path):
    kind = FORMATS["checkpoint of server"]
    path = kind.write(tmp_path)
    contents = kind.unpack(path) | {"values": np.broadcast_to(np.float32(0), (10**12,))}
    kind.pack(path, contents)
    assert path.stat().st_size < 10_000
    assert peak_of(lambda: refusal(kind, path)) < 2_000_000


def test_sizes_that_a_file_only_claims_are_refused(tmp_path):
    """The directory of a zip file that claims a larger array than the file can hold."""
    path = FORMATS["model"].write(tmp_path)
    data = bytearray(path.read_bytes())
    at = data.rindex(b"PK\1\2")
    data[at + 20 : at + 28] = struct.pack("<II", 1 << 30, 1 << 30)
    path.write_bytes(bytes(data))
    assert peak_of(lambda: refusal(FORMATS["model"], path)) < 2_000_000
