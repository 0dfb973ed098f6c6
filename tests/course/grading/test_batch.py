"""A batch: results are on disk after each submission, a crash at any instant loses none, and the same command continues.

Grading is replaced by a function that returns given scores, so only the batch is tested.
"""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from labkit.course.grading import batch, reader
from labkit.course.grading.answers import Answers
from labkit.course.grading.batch import Grading, stop_on_signals
from labkit.course.grading.grade import GradingKey
from labkit.course.grading.journal import Journal, fingerprint_of_reference, fingerprint_of_submission
from labkit.course.grading.lms import Student
from labkit.course.grading.nbval_run import Harness, Interrupted
from labkit.course.grading.scores import Result, zero_scores
from labkit.course.grading.submissions import Submission
from labkit.course.sandbox.confine import confinement_problem
from labkit.course.schema import parse
from labkit.errors import BadInput
from tests.command_line import invoke
from tests.course import toy_reference as toy
from tests.course.sharing import alive

REFERENCE = parse(toy.notebook(), "m")
NAMES = [f"S{i}" for i in range(6)]


def submission(name="ada", answer="7", **more):
    return Submission(f"{name}.ipynb", Student(name, "1", "moodle"), Answers({"q3": answer}), **more)


def result(of, **more):
    """The result of grading: full points for 7, else none."""
    marks = zero_scores(REFERENCE)
    if of.answers and of.answers.solutions.get("q3", "").endswith("7"):
        marks = tuple(replace(m, tests=tuple(replace(t, passed=True, hint="") for t in m.tests)) for m in marks)
    return Result(of.student, of.path, marks, of.notes, **more)


class TestJournal:
    def test_a_result_is_read_back_unchanged(self, tmp_path):
        path = tmp_path / "j"
        made = [submission("ada", notes=("n\u2028", "half \ud83d")), submission("bob", "8"), submission("Eve", "9")]
        with Journal(path, "m") as first:
            for each in made:
                first.add(each, result(each))
        with Journal(path, "m") as second:
            assert [second.find(each) for each in made] == [result(each) for each in made]
            assert second.find(submission("ada", "other")) is None

    def test_fingerprints_depend_on_content_variant_and_student(self):
        plain = submission()
        others = [
            submission("bob"), submission(answer="8"), replace(plain, path="x"), replace(plain, notes=("late",)),
            replace(plain, answers=None, problem="p"), replace(plain, variant="v"),
            replace(plain, answers=Answers({"q3": "7"}, {"q3": ["x = 1"]})),
            replace(plain, answers=Answers({"q3": "7"}, after=["x"])),
            replace(plain, answers=Answers({"q3": "7"}, explained={"q4-why": "x"})),
        ]  # fmt: skip
        prints = {fingerprint_of_submission(each) for each in (plain, *others)}
        assert len(prints) == len(others) + 1
        assert fingerprint_of_submission(submission()) in prints
        changed = toy.notebook()
        toy.find(changed, "q1-test")["source"] += "\n# more"
        references = {fingerprint_of_reference(REFERENCE, "a"), fingerprint_of_reference(REFERENCE, "b")}
        assert len(references | {fingerprint_of_reference(parse(changed, "m"), "a")}) == 3

    def test_results_of_another_reference_notebook_are_not_reused(self, tmp_path):
        with Journal(tmp_path / "j", "m") as first:
            first.add(submission(), result(submission()))
        with Journal(tmp_path / "j", "other") as second:
            assert (second.find(submission()), second.other) == (None, 1)

    def test_results_broken_by_the_machine_are_not_reused(self, tmp_path):
        with Journal(tmp_path / "j", "m") as first:
            first.add(submission(), result(submission(), problem="broke", broken=True))
            assert first.find(submission()) is None
            first.add(submission(), result(submission()))
        with Journal(tmp_path / "j", "m") as second:
            assert second.find(submission()) == result(submission())

    def test_a_journal_cut_off_at_any_byte_keeps_the_complete_lines(self, tmp_path):
        made = [submission(name) for name in ("ada", "bob", "eve")]
        with Journal(tmp_path / "whole", "m") as first:
            for each in made:
                first.add(each, result(each))
        whole = (tmp_path / "whole").read_bytes()
        lines = [len(line) for line in whole.splitlines(keepends=True)]
        for cut in [*range(0, len(whole), 97), lines[0] - 1, lines[0], lines[0] + 1, len(whole) - 1, len(whole)]:
            path = tmp_path / "cut"
            path.write_bytes(whole[:cut])
            kept = [sum(lines[: i + 1]) <= cut + 1 for i in range(3)]  # only the end of its line may be missing
            with Journal(path, "m") as second:
                assert [second.find(each) is not None for each in made] == kept
                for each in made:
                    second.add(each, result(each))
            with Journal(path, "m") as third:
                assert all(third.find(each) for each in made)

    def test_a_file_that_is_not_a_journal_is_not_changed(self, tmp_path):
        (tmp_path / "j").write_text("my thesis\nis here\n")
        with pytest.raises(BadInput, match="is no journal"):
            Journal(tmp_path / "j", "m")
        assert (tmp_path / "j").read_text() == "my thesis\nis here\n"

    @pytest.mark.skipif(os.name == "nt", reason="there are no locks of this kind")
    def test_a_journal_in_use_is_refused(self, tmp_path):
        with Journal(tmp_path / "j", "m") as first:
            first.add(submission(), result(submission()))
            with pytest.raises(BadInput, match="another `labkit grade`"):
                Journal(tmp_path / "j", "m")
        Journal(tmp_path / "j", "m").close()


def handed_in(folder, **answers):
    """A Moodle zip with these answers to q3 by name."""
    path = folder / "all.zip"
    with zipfile.ZipFile(path, "w") as made:
        for i, (name, answer) in enumerate(answers.items()):
            raw = toy.solve(toy.notebook(), q3=f"# q3 (keep this line)\nanswer = {answer}")
            made.writestr(f"{name}_{i}_assignsubmission_file_/toy.ipynb", json.dumps(raw))
    return path


@pytest.fixture
def quick(monkeypatch):
    """Replaces grading by given marks; yields the names of the graded students."""
    graded = []

    def grade_one(key, of, harness, again=False):
        graded.append(of.student.name)
        return result(of)

    monkeypatch.setattr(batch, "make_key", lambda base, variant, harness: GradingKey(base, {}))
    monkeypatch.setattr("labkit.course.grading.grade.grade_one", grade_one)
    return graded


confined = pytest.mark.skipif(
    bool(confinement_problem()), reason=f"`grade` runs on Linux only: {confinement_problem()}"
)


def grading_command(tmp_path, *words):
    reference = toy.write(tmp_path, toy.notebook())
    command = ["grade", tmp_path / "all.zip", "--reference", reference, "--csv", tmp_path / "marks.csv", *words]
    return [str(word) for word in command]


@confined
class TestContinuing:
    def grade(self, tmp_path, *words):
        return invoke(*grading_command(tmp_path, *words))

    def marks(self, tmp_path):
        return marks_in((tmp_path / "marks.csv").read_text())

    def test_the_same_command_reuses_results(self, tmp_path, quick):
        handed_in(tmp_path, ada="7", bob="8", eve="7")
        assert self.grade(tmp_path).exit_code == 0
        first = (tmp_path / "marks.csv").read_bytes()
        assert sorted(quick) == ["ada", "bob", "eve"]
        quick.clear()
        done = self.grade(tmp_path)
        assert quick == []
        assert "3 submissions, 3 reused from marks.csv.journal, 0 to grade" in done.stderr
        assert (tmp_path / "marks.csv").read_bytes() == first

    def test_changed_submissions_are_graded_again(self, tmp_path, quick):
        handed_in(tmp_path, ada="7", bob="8")
        self.grade(tmp_path)
        quick.clear()
        handed_in(tmp_path, ada="7", bob="7")
        done = self.grade(tmp_path)
        assert quick == ["bob"]
        assert "1 reused" in done.stderr
        assert self.marks(tmp_path) == {"ada": "8", "bob": "8"}

    def test_a_new_variant_grades_all_submissions_again(self, tmp_path, quick):
        handed_in(tmp_path, ada="7", bob="8")
        self.grade(tmp_path)
        quick.clear()
        done = self.grade(tmp_path, "--variant", "autumn")
        assert sorted(quick) == ["ada", "bob"]
        assert "2 results in it have another reference notebook, variant or version" in done.stderr

    @pytest.mark.slow
    def test_only_grades_one_student_again(self, tmp_path, quick):
        handed_in(tmp_path, ada="7", bob="8", eve="7")
        self.grade(tmp_path)
        for who in ("bob", "1"):
            quick.clear()
            assert self.grade(tmp_path, "--only", who).exit_code == 0
            assert quick == ["bob"]
            assert self.marks(tmp_path) == {"ada": "8", "bob": "0", "eve": "8"}
        done = self.grade(tmp_path, "--only", "bobb")
        assert (done.exit_code, "Did you mean 'bob'" in done.stderr) == (2, True)

    def test_only_needs_a_journal(self, tmp_path, quick):
        handed_in(tmp_path, ada="7")
        done = self.grade(tmp_path, "--only", "ada")
        assert (done.exit_code, "there is no journal" in done.stderr) == (2, True)

    def test_an_unknown_attempt_policy_is_refused(self, tmp_path, quick):
        handed_in(tmp_path, ada="7")
        done = self.grade(tmp_path, "--attempts", "newest")
        assert (done.exit_code, "allowed: last, first, best-of-N" in done.stderr) == (2, True)

    def test_a_full_disk_affects_the_journal_only(self, tmp_path, quick, monkeypatch):
        def fail(self, *_):
            raise OSError(28, "No space left on device")

        handed_in(tmp_path, ada="7")
        monkeypatch.setattr(Journal, "add", fail)
        done = self.grade(tmp_path)
        assert "cannot be written, so the batch cannot be continued: No space" in done.stderr
        assert self.marks(tmp_path) == {"ada": "8"}


def marks_in(text):
    return {row["Full name"]: row["Grade"] for row in csv.DictReader(io.StringIO(text))}


SCRIPT = """
import os, signal, sys
from labkit.cli import main
from labkit.course.grading import batch, grade as grading, reports
from tests.course.grading import test_batch as t
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGTERM):  # which the tests' own process may ignore
    signal.signal(number, signal.SIG_DFL)
after = int(sys.argv.pop(1))
write = reports.write_text
def told(path, text, sync):
    write(path, text, sync)
    os.write(1, f"{len(t.marks_in(text))} written\\n".encode())
def grade_one(key, of, harness, again=False):
    if int(of.student.id) < after:
        return t.result(of)
    os.write(1, b"started\\n")
    harness.stop.wait()
    raise grading.Interrupted("Interrupted.")
batch.make_key = lambda base, variant, harness: t.GradingKey(base, {})
reports.write_text, grading.grade_one = told, grade_one
main(sys.argv[1:])
"""


@confined
@pytest.mark.parametrize(
    ("number", "after"),
    [
        ("SIGKILL", 1),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("SIGINT", 3), ("SIGTERM", 0), ("SIGHUP", 5))),
    ],
)
def test_an_interrupted_batch_continues(tmp_path, quick, number, after):
    """What was graded before the end is in the CSV and in the journal; the same command completes the CSV from it."""
    handed_in(tmp_path, **{name: "7" if i % 2 else "8" for i, name in enumerate(NAMES)})
    whole = {name: "8" if i % 2 else "0" for i, name in enumerate(NAMES)}
    marks = tmp_path / "marks.csv"
    command = grading_command(tmp_path, "--jobs", 2)
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(after), *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    with process:
        missing = {"started\n"} | ({f"{after} written\n"} if after else set())
        while missing and (line := process.stdout.readline()):
            missing.discard(line)
        process.send_signal(getattr(signal, number))
        _, reported = process.communicate()
    assert not missing, reported
    if number != "SIGKILL":
        assert process.returncode == 130, reported
        assert reported.endswith("Interrupted.\n")
    assert marks_of(marks) == {name: whole[name] for name in NAMES[:after]}
    done = invoke(*command)
    assert done.exit_code == 0, done.stderr
    assert sorted(quick) == NAMES[after:]
    assert marks_of(marks) == whole
    left = {path.name for path in tmp_path.iterdir()} - {"all.zip", "reference.ipynb"}
    assert left == {"marks.csv", "marks.csv.journal"}


def marks_of(path):
    return marks_in(path.read_text()) if path.exists() else {}


BUSY = """
import os, sys
told = open({fifo!r}, "w")
told.write(f"{{os.getpid()}}\\n")
told.flush()
while True: pass
"""


def test_an_interrupt_ends_the_reading_of_files(tmp_path, monkeypatch):
    """Two reading processes that do not come to an end: the interrupt ends them."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    (tmp_path / "busy.py").write_text(BUSY.format(fifo=str(fifo)))
    monkeypatch.setattr(reader, "LAUNCH", tmp_path / "busy.py")
    paths = [toy.write(tmp_path, toy.notebook(), name) for name in ("a.ipynb", "b.ipynb")]
    stop, busy = threading.Event(), []

    def stop_when_busy():
        with fifo.open() as lines:
            busy.extend(int(lines.readline()) for _ in paths)
        stop.set()

    thread = threading.Thread(target=stop_when_busy)
    thread.start()
    with Grading(REFERENCE, None, Harness(stop=stop), 2, None) as made, pytest.raises(Interrupted):
        made.read(paths, batch.AttemptPolicy(), "")
    thread.join()
    assert len(busy) == 2
    assert not any(alive(pid) for pid in busy)


def test_signals_set_the_event_and_ignored_ones_stay_ignored():
    before = {name: signal.getsignal(getattr(signal, name)) for name in ("SIGINT", "SIGTERM", "SIGHUP")}
    stop = threading.Event()
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which `nohup` ignores
        with stop_on_signals(stop):
            os.kill(os.getpid(), signal.SIGINT)
            assert not stop.is_set()
            for number in (signal.SIGTERM, signal.SIGHUP):
                os.kill(os.getpid(), number)
                stop.wait()
                stop.clear()
        assert signal.getsignal(signal.SIGTERM) == before["SIGTERM"]
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        for name, handler in before.items():
            signal.signal(getattr(signal, name), handler)
