"""Checkpoints: a complete checkpoint is read back unchanged, and a damaged one is never accepted."""

import errno
import os
import pickle
import threading
import time
import types
import uuid
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from fsspec.core import url_to_fs
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

import labkit as lk
from labkit.engines.storage import locations
from labkit.engines.storage.checkpoint_format import HEADER, decode_state, encode_state
from labkit.engines.storage.store import TAGS_PER_INCARNATION, TAGS_PER_RESUMPTION, Store, open_store
from labkit.nn import EmbeddingBag, SparseParameters

STATE = {"values": np.arange(12, dtype=np.float32).reshape(3, 4), "version": 7, "last": {("worker-0", 1): 3}}


def same(a, b):
    """Equal in value, type and shape, to any depth; NaN is equal to itself."""
    if isinstance(a, np.ndarray):
        return (
            isinstance(b, np.ndarray) and (a.dtype, a.shape) == (b.dtype, b.shape)
            and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes()
        )  # fmt: skip
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and (a == b or (a != a and b != b))


@pytest.fixture(params=["folder", "memory"])
def store(request, tmp_path):
    made = Store(tmp_path / "kept" if request.param == "folder" else f"memory://{uuid.uuid4().hex}/kept").check()
    yield made
    made.clear()


# round trip -----------------------------------------------------------------------------------------------------------

ARRAYS = st.builds(
    lambda dtype, shape, seed: np.asarray(np.random.default_rng(seed).random(shape) * 200 - 100).astype(dtype),
    st.sampled_from(["f4", "f8", ">f8", "i8", "u1", "?", "c16"]),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.integers(0, 99),
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
VALUES = st.recursive(
    PLAIN | ARRAYS,
    lambda inner: st.lists(inner, max_size=3)
    | st.lists(inner, max_size=3).map(tuple)
    | st.dictionaries(st.text(max_size=3) | st.integers(0, 9) | st.tuples(st.text(max_size=2), st.integers()), inner),
    max_leaves=8,
)  # fmt: skip


@settings(deadline=None, max_examples=50)
@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_a_state_is_unchanged_after_a_round_trip(state):
    assert same(decode_state(b"".join(encode_state(state))), state)


def test_decoded_arrays_own_their_memory():
    wide = np.arange(24.0).reshape(4, 6)
    state = {"part": wide[::2, 1:4], "turned": wide.T, "one": np.float32(1.5), "n": np.int64(3)}
    back = decode_state(b"".join(encode_state(state)))
    np.testing.assert_array_equal(back["part"], wide[::2, 1:4])
    np.testing.assert_array_equal(back["turned"], wide.T)
    back["part"][0] = 0  # a shard applies gradients in place
    assert (back["one"], back["n"]) == (1.5, 3)


def test_other_mappings_and_lists_are_plain_when_they_are_read():
    class Table(dict):
        pass

    class Several(list):
        pass

    state = {"a": types.MappingProxyType({1: 2}), "b": Table(x=np.arange(2)), "c": Several([1, (2,)])}
    back = decode_state(b"".join(encode_state(state)))
    assert same(back, {"a": {1: 2}, "b": {"x": np.arange(2)}, "c": [1, (2,)]})


def test_rows_of_a_table():
    bag = EmbeddingBag(10_000_000, 2, 3)
    rows = SparseParameters(bag, np.array([3, 9_000_000]), np.arange(7, dtype=np.float32), 5)
    back = decode_state(b"".join(encode_state({"shards": [rows]})))["shards"][0]
    assert back.fingerprint() == rows.fingerprint()
    assert (back.bag, back.seed) == (bag, 5)


def test_arrays_without_memory_stay_so():
    pieces = encode_state({"values": np.broadcast_to(np.float32(0), (10_000_000,))})
    assert sum(map(len, pieces)) < 500
    back = decode_state(b"".join(pieces))["values"]
    assert (back.shape, back.dtype, back.strides) == ((10_000_000,), np.float32, (0,))


def test_values_that_cannot_be_stored_are_refused_with_their_place(store):
    store.write("server-0", STATE, 1)
    for bad, name in [
        (object(), "object"), ({len}, "builtin_function_or_method"), (iter([1]), "list_iterator.* only once"),
        (np.array(["2020"], "M8[D]"), "array of dtype datetime64"),
    ]:  # fmt: skip
        with pytest.raises(lk.BadInput, match=rf"server-0 .*state\['table'\]\[1\]\[2\].* is an? .*{name}"):
            store.write("server-0", {"table": [0, {2: bad}]}, 2)
    assert store.tags("server-0") == [1]


# the store ------------------------------------------------------------------------------------------------------------


def test_the_two_newest_checkpoints_are_kept(store):
    assert store.read("server-0") == (None, "")
    assert store.tags("server-0") == []
    for tag in (1, 5, 240):
        store.write("server-0", {"version": tag}, tag)
        store.write("server-01", {"version": tag}, tag)  # a name that begins alike
    assert store.tags("server-0") == [5, 240]
    assert store.read("server-0") == ({"version": 240}, "")
    assert store.read_all("server-0") == ({240: {"version": 240}, 5: {"version": 5}}, "")
    assert store.roles() == ["server-0", "server-01"]


def test_the_number_of_kept_checkpoints_can_be_set(tmp_path):
    store = Store(tmp_path, keep=4)
    for tag in range(9):
        store.write("worker-0", {}, tag)
    assert store.tags("worker-0") == [5, 6, 7, 8]


def test_a_checkpoint_of_a_fenced_incarnation_replaces_none_of_its_successor(store):
    """An incarnation resumes after its successor has begun: its checkpoint is older, and is removed."""
    for tag in (5, TAGS_PER_INCARNATION + 3, TAGS_PER_INCARNATION + 4):
        store.write("server-0", {"tag": tag}, tag)
    store.write("server-0", {"tag": 7}, 7)
    assert store.tags("server-0") == [TAGS_PER_INCARNATION + 3, TAGS_PER_INCARNATION + 4]


def test_a_resumed_run_has_newer_tags_than_its_predecessors(store):
    for tag in (5, 3 * TAGS_PER_INCARNATION + 240):
        store.write("server-0", {"tag": tag}, tag)
    again = Store(store.location, times_resumed=1)
    assert again.read("server-0") == ({"tag": 3 * TAGS_PER_INCARNATION + 240}, "")
    (older, old) = again.tags("server-0")
    assert older < old < 0
    assert again.read_all("server-0")[0][older] == {"tag": 5}
    again.write("server-0", {"tag": 0}, 0)
    assert again.tags("server-0") == [old, 0]
    assert again.read("server-0") == ({"tag": 0}, "")
    store.write("server-0", {"tag": 241}, 241)  # a role of the first run is still there
    assert Store(store.location, times_resumed=1).read("server-0") == ({"tag": 0}, "")
    overwrite(again, "server-0", 0, lambda data: data[:-1])
    assert again.read("server-0")[1] == f"server-0.{TAGS_PER_RESUMPTION}.ckpt is damaged (truncated)"


def test_any_name_of_a_role(store):
    names = ["worker 1", "a/../b", "ré%le", "x.y.z", "[*]"]
    for role, tag in product(names, (0, 1, 2)):
        store.write(role, STATE, tag)
    assert sorted(store.roles()) == sorted(names)
    assert [store.tags(role) for role in names] == [[1, 2]] * len(names)
    assert len(store.files.names()) == 2 * len(names)


def test_checkpoint_tags_are_non_negative_integers(store):
    for tag in (-1, 1.5, True, "3", None):
        with pytest.raises(lk.BadInput, match="tag="):
            store.write("server-0", STATE, tag)


def test_a_store_can_be_pickled(store, monkeypatch, tmp_path):
    store.write("server-0", STATE, 3)
    monkeypatch.chdir(tmp_path)
    other = pickle.loads(pickle.dumps(store))
    assert same(other.read("server-0")[0], STATE)
    assert (other.location, other.keep, other.local) == (store.location, store.keep, store.local)


def test_a_relative_folder_is_resolved_when_the_store_is_created(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = Store("kept")
    assert store.location == str(tmp_path / "kept")
    assert Store(f"file://{tmp_path}/a%20b").location == str(tmp_path / "a b")


def test_jumps_of_the_system_clock_are_tolerated(store, monkeypatch):
    for tag, now in enumerate([2e9, 1e9, 0.0, -5.0, 4e9]):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        monkeypatch.setattr(time, "time_ns", lambda now=now: int(now * 1e9))
        store.write("chief", {"update": tag}, tag)
    assert store.read("chief") == ({"update": 4}, "")
    assert store.tags("chief") == [3, 4]


# damage: see also tests/test_files.py ---------------------------------------------------------------------------------

WHOLE = b"".join(encode_state(STATE))


def overwrite(store, role, tag, change):
    numbers = {name: int(name.split(".")[1]) for name in store.files.names() if name.startswith(f"{role}.")}
    name = max(name for name, number in numbers.items() if number % TAGS_PER_RESUMPTION == tag)
    data = store.files.get(name)
    store.files.remove(name)
    store.files.put(name, [change(data)])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda d: d[:-3], "truncated"), (lambda d: d[:-1] + bytes([d[-1] ^ 4]), "checksum"), (lambda d: b"", "truncated"),
        (lambda d: d[:8] + b"\2\0" + d[10:], "format 2, made by an older labkit; this one reads format 3"),
    ],
    ids=["truncated", "a bit", "empty", "format"],
)  # fmt: skip
def test_a_damaged_checkpoint_is_replaced_by_its_predecessor(store, change, why):
    for tag in (180, 240):
        store.write("server-0", {"version": tag, "values": np.ones(50)}, tag)
    overwrite(store, "server-0", 240, change)
    state, remark = store.read("server-0")
    assert state["version"] == 180
    newest, before = (f"server-0.{version:012d}.ckpt is damaged ({why})" for version in (240, 180))
    assert remark == newest
    assert store.tags("server-0") == [180]
    overwrite(store, "server-0", 180, change)
    assert store.read("server-0") == (None, f"{newest}, {before}")


def test_a_checkpoint_under_a_wrong_name_is_ignored(tmp_path):
    store = Store(tmp_path)
    store.write("server-0", STATE, 3)
    os.rename(tmp_path / "server-0.000000000003.ckpt", tmp_path / "server-0.000000000009.ckpt")
    assert store.read("server-0") == (None, "server-0.000000000009.ckpt is damaged (it belongs to another role)")


# writing that fails ---------------------------------------------------------------------------------------------------


def opened(path, mode):
    return Path(path).open(mode)


class Full:
    """A file on a disk that is full after so many bytes."""

    def __init__(self, file, left):
        self.file, self.left = file, left

    def write(self, piece):
        self.file.write(bytes(piece)[: self.left])
        self.left -= len(piece)
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name):
        return getattr(self.file, name)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.file.close()


@pytest.mark.parametrize("left", [0, 1, HEADER.size, 80, 200])
def test_a_full_disk_loses_no_checkpoint(tmp_path, monkeypatch, left):
    store = Store(tmp_path)
    store.write("server-0", STATE, 1)
    monkeypatch.setattr(locations, "open", lambda path, mode: Full(opened(path, mode), left), raising=False)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        store.write("server-0", STATE, 2)
    monkeypatch.undo()
    assert store.tags("server-0") == [1]
    assert os.listdir(tmp_path) == ["server-0.000000000001.ckpt"]
    store.write("server-0", STATE, 2)  # there is room again
    assert store.tags("server-0") == [1, 2]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full: only Linux has a disk that is full")
def test_a_disk_that_is_really_full(monkeypatch, tmp_path):
    monkeypatch.setattr(locations, "open", lambda path, mode: opened("/dev/full", "wb"), raising=False)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        Store(tmp_path).write("server-0", STATE, 2)


def test_a_checkpoint_is_synced_before_it_is_renamed(tmp_path, monkeypatch):
    """The temporary file is synced before it is renamed, then the folder; the old file is removed last."""
    store, calls = Store(tmp_path, keep=1), []
    store.write("server-0", STATE, 1)
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, real=real, name=name: (calls.append(name), real(*a))[1])
    remove = store.files.remove
    monkeypatch.setattr(store.files, "remove", lambda name: (calls.append("remove"), remove(name)))
    store.write("server-0", STATE, 2)
    assert calls == ["fsync", "replace", "fsync", "remove"]

    def broken(handle):
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(OSError, match="broken"):
        store.write("server-0", STATE, 3)
    assert store.tags("server-0") == [2]


def test_a_killed_writer_leaves_no_complete_file(tmp_path):
    """An incomplete temporary file of a killed process is not a checkpoint, and the next writer removes it."""
    store = Store(tmp_path)
    store.write("server-0", STATE, 1)
    gone, living = (
        tmp_path / f".server-0.000000000002.ckpt.{2**22 + 1}.ab.draft",
        tmp_path / (f".server-0.000000000003.ckpt.{os.getpid()}.cd.draft"),
    )
    for path in (gone, living):
        path.write_bytes(WHOLE[:50])
    assert store.tags("server-0") == [1]
    store.write("server-0", STATE, 2)
    assert not gone.exists()
    assert living.exists()  # another writer may be at it
    assert store.tags("server-0") == [1, 2]


def test_clearing_a_store_removes_the_drafts_of_killed_writers(store):
    url = store.location if "://" in store.location else f"file://{store.location}"
    files, folder = url_to_fs(url)
    store.write("server-0", STATE, 1)
    files.pipe_file(f"{folder}/.server-0.000000000002.ckpt.12345.ab.draft", WHOLE[:50])
    store.clear()
    files.invalidate_cache()
    assert files.ls(folder, detail=False) == []


def test_with_two_writers_the_stored_checkpoint_is_always_complete(store):
    """A fenced incarnation and its successor write at once: the stored checkpoint is always complete."""
    failures = []

    def write(first):
        try:
            for tag in range(first, first + 40, 2):
                store.write("server-0", {"version": tag, "values": np.full(500, tag)}, tag)
                found, _ = store.read("server-0")
                assert found is None or (found["values"] == found["version"]).all()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=write, args=(first,)) for first in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(180)
    assert failures == []
    assert store.read_all("server-0")[1] == ""
    assert store.read("server-0") is not None
    assert not [name for name in store.files.names() if "draft" in name]


# where ----------------------------------------------------------------------------------------------------------------


def test_places_that_cannot_be_are_refused(tmp_path):
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(lk.BadInput, match="cannot be written to"):
            Store(place).check()
    with pytest.raises(lk.BadInput, match="nowhere"):
        Store("nowhere://x")
    with pytest.raises(lk.BadInput, match="keep=0"):
        Store(tmp_path, keep=0)
    for bad in (3, "", b"x"):
        with pytest.raises(lk.BadInput, match="checkpoint="):
            open_store(bad)


def test_a_location_that_cannot_be_written_is_refused_with_the_error_of_the_system(tmp_path, monkeypatch):
    def refuses(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    store = Store(tmp_path)
    monkeypatch.setattr(locations, "open", refuses, raising=False)
    with pytest.raises(lk.BadInput, match=r"cannot be written to .Permission denied"):
        store.check()
    with pytest.raises(PermissionError):
        store.write("server-0", STATE, 1)


def test_errors_of_a_file_system_are_of_the_system(monkeypatch):
    def gone(*arguments, **options):
        raise RuntimeError("no connection")

    store = Store(f"memory://{uuid.uuid4().hex}").check()
    store.write("server-0", STATE, 1)
    with monkeypatch.context() as broken:
        for method in ("open", "ls", "rm", "invalidate_cache"):
            broken.setattr(MemoryFileSystem, method, gone)
        with pytest.raises(OSError, match="no connection"):
            store.write("server-0", STATE, 2)
        with pytest.raises(OSError, match="no connection"):  # "not found" would be another answer
            store.read("server-0")
    assert store.tags("server-0") == [1]
    store.clear()


def test_true_false_and_none_are_no_locations():
    assert [open_store(nothing) for nothing in (None, True, False)] == [None] * 3
