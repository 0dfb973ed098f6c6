"""What several programs may write at once: one of them writes, a killed one leaves no lock, and readers find whole files.

The oracle of mutual exclusion is a number of holders, which each holder changes without a lock of its own: it is never two.
"""

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import labkit as lk
from labkit import files
from labkit.files import FileLock, TemporaryFolders, lock_open_file, reserved, whole_file

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")


def begun(path):
    problem = lk.Problem("moons", hidden=(4,), options={"samples": 100})
    return lk.train(problem, lk.AsyncPS(), lk.SimulatedCluster(workers=1), lk.Budget(updates=9), checkpoint=path)


def resumed(path):
    begun(path)  # and dropped
    return lk.resume(path)


def graded(path):
    """What `labkit grade` does while it writes its reports."""
    context = reserved([path / "marks.csv", path], "another `labkit grade`")
    context.__enter__()
    return context


# {what a program writes: (how it begins to write, how another one continues when the first has ended)}
WRITERS = {"a run": (begun, lk.resume), "a resumed run": (resumed, lk.resume), "reports": (graded, graded)}
HOLDER = """
import sys
from pathlib import Path
from tests.test_locks import WRITERS
held = WRITERS[sys.argv[1]][0](Path(sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("what", WRITERS)
def test_only_one_program_writes_and_a_killed_one_leaves_no_lock(tmp_path, what):
    begin, proceed = WRITERS[what]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOLDER, what, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as other:
        assert other.stdout.readline() == b"held\n"
        for refused in (begin, proceed):
            with pytest.raises(lk.BadInput, match=f"{tmp_path}.*process {other.pid}\\b"):
                refused(tmp_path)
        other.kill()
    held = proceed(tmp_path)
    with pytest.raises(lk.BadInput, match=f"{tmp_path}.*this program"):
        proceed(tmp_path)
    held = held.__exit__(None, None, None) if what == "reports" else held.stop()
    proceed(tmp_path)  # the first one has ended
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")] or what == "reports"


def test_of_two_resumptions_at_once_one_is_accepted(tmp_path):
    """The runs that are accepted repeat the same run: its journal is that of one of them."""
    begun(tmp_path).advance(0.02)
    found, ready = [], threading.Barrier(6)

    def resume():
        ready.wait()
        try:
            found.append(lk.resume(tmp_path))
        except lk.BadInput as error:
            found.append(str(error))

    threads = [threading.Thread(target=resume) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runs = [each for each in found if isinstance(each, lk.Run)]
    assert len(runs) == 1, found
    assert all("belongs to a run in" in text for text in found if text is not runs[0])
    assert runs[0].wait().stopped_by == "updates"


def test_a_lock_has_one_holder_although_its_file_is_removed(tmp_path):
    inside, most, turns, threads = [], [], 200, []

    def work():
        lock, mine = FileLock(tmp_path / "lock"), 0
        while mine < turns:
            if lock.acquire():
                inside.append(lock)
                most.append(len(inside))
                os.listdir(tmp_path)  # lets other threads run
                inside.remove(lock)
                mine += 1
                lock.release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(most), max(most)) == (4 * turns, 1)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_does_not_hold_the_lock_of_its_parent(tmp_path):
    lock = FileLock(tmp_path / "lock")
    assert lock.acquire()
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.close(write)
        os.read(read, 1)  # until the parent has closed its end
        os._exit(0)
    assert FileLock(tmp_path / "lock").acquire() is False  # the parent still holds it
    lock.release()
    assert FileLock(tmp_path / "lock").acquire()
    os.close(write)
    os.close(read)
    assert os.waitpid(child, 0) == (child, 0)


def test_a_file_that_is_open_is_locked_until_it_is_closed(tmp_path):
    with open(tmp_path / "a", "wb") as first, open(tmp_path / "a", "rb") as second:
        assert lock_open_file(first.fileno())
        assert lock_open_file(second.fileno()) is False
        first.close()
        assert lock_open_file(second.fileno())


# whole files ----------------------------------------------------------------------------------------------------------


def test_the_last_of_two_writers_replaces_a_file_as_a_whole(tmp_path):
    path, seen = tmp_path / "file", []
    path.write_bytes(b"old")
    (tmp_path / "link").symlink_to(path)
    with whole_file(path) as one, whole_file(tmp_path / "link") as two:
        for file, data in ((one, b"o"), (two, b"tw"), (one, b"ne"), (two, b"o")):
            file.write(data)
            file.flush()
            seen.append(path.read_bytes())
    assert (seen, path.read_bytes()) == ([b"old"] * 4, b"one")
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]
    assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize("step", ["fsync", "replace", "its content"])
def test_a_file_that_cannot_be_written_stays_as_it_is(tmp_path, monkeypatch, step):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail(*_):
        raise OSError(28, "No space left on device")

    def write():
        with whole_file(path, sync=True) as file:
            file.write(b"new")
            if step == "its content":
                fail()

    if step != "its content":
        monkeypatch.setattr(files.os, step, fail)
    with pytest.raises(OSError, match="No space"):
        write()
    monkeypatch.undo()
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["file"])


# temporary folders ----------------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from labkit.files import TemporaryFolders
print(TemporaryFolders().program_folder(sys.argv[1]), flush=True)
sys.stdin.read()
"""


def test_folders_of_killed_programs_are_removed_and_nothing_else(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    with contextlib.ExitStack() as ends:
        programs = [
            ends.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
            )
            for _ in range(3)
        ]
        killed, goes_on, ended = (Path(program.stdout.readline().decode().strip()) for program in programs)
        (killed / "a" / "b").mkdir(parents=True)
        (killed / "a" / "file").touch()
        (killed / "a" / "link").symlink_to(tmp_path)
        programs[0].kill()
        programs[2].stdin.close()
        for program in (programs[0], programs[2]):
            program.wait()
        assert (killed.is_dir(), goes_on.is_dir(), ended.exists()) == (True, True, False)

        lock = files.OF_TEMPORARY_FOLDER
        for name in (
            "labkit-without-a-lock",
            "other-with-a-lock",
            "labkit-with-the-lock-of-a-run",
            "target",
            "labkit-odd",
        ):
            (tmp_path / name).mkdir()
        (tmp_path / "other-with-a-lock" / lock).touch()
        (tmp_path / "labkit-with-the-lock-of-a-run" / files.OF_FOLDER).touch()
        (tmp_path / "target" / lock).touch()
        (tmp_path / "labkit-link").symlink_to("target")
        (tmp_path / "labkit-odd" / lock).symlink_to(tmp_path / "target" / lock)
        (tmp_path / "labkit-file").touch()
        if os.geteuid() == 0:
            (tmp_path / "labkit-of-another-user").mkdir()
            (tmp_path / "labkit-of-another-user" / lock).touch()
            os.chown(tmp_path / "labkit-of-another-user", 12345, -1)
        before = set(os.listdir(tmp_path))

        folders = TemporaryFolders()
        own = folders.program_folder(tmp_path)
        assert set(os.listdir(tmp_path)) == before - {killed.name} | {own.name}
        assert folders.program_folder(tmp_path) == own
        assert own.stat().st_mode & 0o077 == 0
        programs[1].kill()
        programs[1].wait()
        TemporaryFolders().program_folder(tmp_path)
        assert (own.is_dir(), goes_on.exists()) == (True, False)
