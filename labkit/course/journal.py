"""The journal of a batch: every result, on disk as soon as it is there, so that a batch can be continued.

One line of JSON for each result, appended and synchronized before the next is taken up. After a crash at any instant the
file holds every result before it; a line that was cut off is passed over. A result is taken over if the fingerprints are
the same: of what is graded (the master with its variant, the version of labkit) and of what was handed in. It holds hidden
tests, so it is for the instructor only.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import BadInput
from .intake import Submission
from .lms import Student
from .marks import QuestionMark, Result, TestMark
from .schema import Assignment

__all__ = ["Journal", "fingerprint_of_master", "fingerprint_of_submission", "write_whole"]

FORMAT = 1


def fingerprint_of_master(base: Assignment, variant: str) -> str:
    """What results depend on besides the submission."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        made_by = version("labkit-distributed")
    except PackageNotFoundError:
        made_by = ""
    return _digest([FORMAT, made_by, variant, base.tools, [asdict(cell) for cell in base.cells]])


def fingerprint_of_submission(submission: Submission) -> str:
    """What was handed in, as it was read, by whom and where."""
    taken = None
    if submission.taken is not None:
        found = submission.taken
        taken = [found.solutions, found.before, found.after, found.explained, found.notes, sorted(found.untouched)]
    student = asdict(submission.student)
    return _digest([student, submission.path, taken, submission.problem, submission.notes, submission.variant])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class Journal:
    """Results by fingerprint, in memory and in a file. A context manager; the file is made with the first result.

    Raises:
        BadInput: the file cannot be written, is none of labkit's, or another process writes it.
    """

    def __init__(self, path: Path, master: str) -> None:
        self.path, self._master = path, master
        self._results: dict[str, Result] = {}
        self._descriptor: int | None = None
        self.other = 0
        """Results in the file that were made with another master, variant or version."""
        if path.exists():
            self._open()
            try:
                self._load()
            except BaseException:
                self.close()
                raise

    def _open(self) -> None:
        try:
            self._descriptor = os.open(
                self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600
            )
        except OSError as why:
            raise BadInput(f"{self.path} cannot be written: {why.strerror or why}.") from None
        try:
            import fcntl
        except ImportError:
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise BadInput(
                f"{self.path} is being written by another `labkit grade`; wait for it or name another file."
            ) from None

    def _load(self) -> None:
        try:
            lines = self.path.read_bytes().split(b"\n")
        except OSError as why:
            raise BadInput(f"{self.path} cannot be read: {why.strerror or why}.") from None
        readable = 0
        for line in lines:
            try:
                row = json.loads(line)
                known = row["format"] == FORMAT
                result = _result(row["result"])
                key = str(row["submission"])
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue
            readable += 1
            if known and row["master"] == self._master:
                self._results[key] = result
            else:
                self.other += 1
        if not readable and any(line.strip() for line in lines[:-1]):
            raise BadInput(f"{self.path} is no journal of `labkit grade`; name another file, or move it away.")
        if lines[-1]:  # cut off by a crash: what follows begins on a line of its own
            assert self._descriptor is not None
            os.write(self._descriptor, b"\n")

    def find(self, submission: Submission) -> Result | None:
        """The result of the same submission with the same master, unless the machine was at fault."""
        result = self._results.get(fingerprint_of_submission(submission))
        return None if result is None or result.broken else result

    def add(self, submission: Submission, result: Result) -> None:
        """Append a result; it is on the disk when this returns.

        Raises:
            BadInput: the file cannot be made.
            OSError: the disk is full.
        """
        if self._descriptor is None:
            self._open()
            _sync_folder(self.path.parent)
        assert self._descriptor is not None
        key = fingerprint_of_submission(submission)
        row = {"format": FORMAT, "master": self._master, "submission": key, "result": result.as_json()}
        data = memoryview(json.dumps(row).encode() + b"\n")
        while data:
            data = data[os.write(self._descriptor, data) :]
        os.fsync(self._descriptor)
        self._results[key] = result

    def close(self) -> None:
        """Close the file, and let others write it."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _result(said: Mapping[str, Any]) -> Result:
    """A result of its `as_json`."""
    questions = []
    for each in said["questions"]:
        tests = tuple(TestMark(**test) for test in each["tests"])
        more = {name: each[name] for name in ("question", "by_hand", "answers", "helped")}
        questions.append(QuestionMark(tests=tests, **more))
    student = Student(**said["student"])
    return Result(
        student, said["path"], tuple(questions), tuple(said["notes"]), said["problem"], said.get("broken", False)
    )


def write_whole(path: Path, text: str) -> None:
    """Write a file so that, at any instant, what is at `path` is whole: the old text or the new one.

    Raises:
        OSError: it cannot be written; what was there is unchanged.
    """
    new = path.with_name(f".{path.name[:40]}.{os.getpid()}.new")  # 40 characters have at most 160 of 255 bytes
    try:
        with new.open("w", encoding="utf-8", errors="replace", newline="") as stream:  # JSON may have half a character
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Put a new name on the disk, where folders can be synchronized."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)
