"""The journal of a batch: results on disk, so that an interrupted batch can be continued.

Each result is a line of JSON, which is appended and synchronized before the next result is handled. After a crash the
file has every earlier result; an incomplete last line is ignored. A result is reused if two fingerprints are unchanged:
the fingerprint of the key (the reference with its variant, and the version of labkit) and the fingerprint of the
submission. The journal contains hidden tests, so only the instructor may see it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...errors import BadInput
from ...files import lock_open_file, sync_folder
from ...formats import Form, from_json
from ..schema import Assignment
from .lms import Student
from .scores import QuestionScore, Result, TestScore
from .submissions import Submission

FORMAT = 1
TEST = {"id": str, "points": float, "passed": bool, "hint": str, "detail": str}
QUESTION: Form = {
    "question": str, "tests": [TEST], "by_hand": float, "answers": {str: str}, "with_reference": bool,
}  # fmt: skip
STUDENT = {"name": str, "id": str, "platform": str, "late": bool, "key": str, "upload": int}
ROW: Form = {
    "format": int, "reference": str, "submission": str,
    "result": {
        "student": STUDENT, "path": str, "problem": str, "broken?": bool, "notes": [str], "questions": [QUESTION],
    },
}  # fmt: skip


def fingerprint_of_reference(base: Assignment, variant: str) -> str:
    """Return the fingerprint of everything on which a result depends, except the submission."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        made_by = version("labkit-distributed")
    except PackageNotFoundError:
        made_by = ""
    return _digest([FORMAT, made_by, variant, base.tools, [asdict(cell) for cell in base.cells]])


def fingerprint_of_submission(submission: Submission) -> str:
    """Of the student, the path, and the content as it was read."""
    content = None
    if submission.answers is not None:
        found = submission.answers
        content = [found.solutions, found.before, found.after, found.explained, found.notes, sorted(found.untouched)]
    student = asdict(submission.student)
    return _digest([student, submission.path, content, submission.problem, submission.notes, submission.variant])


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


class Journal:
    """Results by fingerprint, in memory and in a file, which is created with the first result. A context manager.

    Raises `BadInput` if the file cannot be written, is not a journal, or is open in another process.
    """

    def __init__(self, path: Path, reference: str) -> None:
        self.path, self._reference_fingerprint = path, reference
        self._results: dict[str, Result] = {}
        self._descriptor: int | None = None
        self.other = 0
        """The number of results in the file with another reference notebook, variant or version."""
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
        if lock_open_file(self._descriptor) is False:
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
                row: Any = from_json(line, ROW, "")
            except BadInput:
                continue
            readable += 1
            if row["format"] == FORMAT and row["reference"] == self._reference_fingerprint:
                self._results[row["submission"]] = _result(row["result"])
            else:
                self.other += 1
        if not readable and any(line.strip() for line in lines[:-1]):
            raise BadInput(f"{self.path} is no journal of `labkit grade`; name another file, or move it away.")
        if lines[-1]:  # an incomplete line after a crash: new results begin on the next line
            assert self._descriptor is not None
            os.write(self._descriptor, b"\n")

    def find(self, submission: Submission) -> Result | None:
        """Return the result of an equal submission with an equal key, or None.

        A result is not reused if the machine may have caused its problem.
        """
        result = self._results.get(fingerprint_of_submission(submission))
        return None if result is None or result.broken else result

    def add(self, submission: Submission, result: Result) -> None:
        """Append a result; it is on disk when the method returns. Raises OSError if the disk is full."""
        if self._descriptor is None:
            self._open()
            sync_folder(self.path.parent)
        assert self._descriptor is not None
        key = fingerprint_of_submission(submission)
        row = {
            "format": FORMAT,
            "reference": self._reference_fingerprint,
            "submission": key,
            "result": result.as_json(),
        }
        data = memoryview(json.dumps(row).encode() + b"\n")
        while data:
            data = data[os.write(self._descriptor, data) :]
        os.fsync(self._descriptor)
        self._results[key] = result

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _result(data: Mapping[str, Any]) -> Result:
    questions = []
    for each in data["questions"]:
        tests = tuple(TestScore(**{name: test[name] for name in TEST}) for test in each["tests"])
        more = {name: each[name] for name in ("question", "by_hand", "answers", "with_reference")}
        questions.append(QuestionScore(tests=tests, **more))
    student = Student(**{name: data["student"][name] for name in STUDENT})
    return Result(
        student, data["path"], tuple(questions), tuple(data["notes"]), data["problem"], data.get("broken", False)
    )
