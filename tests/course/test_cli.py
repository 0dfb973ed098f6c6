"""`labkit assign | check | grade` on the command line."""

import csv
import errno
import json
import os
import platform
import signal
import subprocess
import sys
import zipfile
from xml.etree import ElementTree

import psutil
import pytest

from labkit.course.authoring.release import release
from labkit.course.bundle import write_release
from labkit.course.grading import batch, reports
from labkit.course.grading.check import unsaved_warnings
from labkit.course.grading.grade import GradingKey
from labkit.course.grading.lms import Student
from labkit.course.grading.scores import Result, zero_scores
from labkit.course.sandbox.confine import confinement_problem
from labkit.course.schema import parse
from labkit.files import write_text
from tests.command_line import invoke as labkit
from tests.course import toy_reference as toy
from tests.course.sharing import wait_for_ends


class TestRefusals:
    def test_a_reference_notebook_that_breaks_rules_is_refused(self, tmp_path):
        raw = toy.notebook()
        toy.find(raw, "q1-test")["metadata"]["nbgrader"]["points"] = 0
        done = labkit("assign", toy.write(tmp_path, raw), "--out", tmp_path / "out")
        assert done.exit_code == 2
        assert "cell 6: points is 0; allowed: a number above 0" in done.stderr
        assert not (tmp_path / "out").exists()

    def test_check_without_a_bundle_is_refused(self, tmp_path):
        done = labkit("check", toy.write(tmp_path, toy.notebook(), "toy.ipynb"))
        assert done.exit_code == 2
        assert "there is no toy.bundle.json beside" in done.stderr

    @pytest.mark.parametrize("content", ["", "{}"])
    def test_check_of_a_file_that_is_not_a_notebook_is_refused(self, tmp_path, content):
        (tmp_path / "x.ipynb").write_text(content)
        assert labkit("check", tmp_path / "x.ipynb").exit_code == 2

    def test_grade_without_submissions_is_refused(self, tmp_path):
        reference = toy.write(tmp_path, toy.notebook())
        (tmp_path / "empty").mkdir()
        done = labkit("grade", tmp_path / "empty", "--reference", reference)
        assert (done.exit_code, "nothing to grade" in done.stderr) == (2, True)

    def test_a_missing_submission_is_refused(self, tmp_path):
        assert labkit("grade", tmp_path / "x.zip", "--reference", toy.write(tmp_path, toy.notebook())).exit_code == 2

    def test_reports_that_cannot_be_written_are_refused_first(self, tmp_path):
        reference = toy.write(tmp_path, toy.notebook())
        (tmp_path / "file").write_text("")
        for arguments in (
            ("--csv", tmp_path / "file" / "x.csv"),
            ("--json", tmp_path),
            ("--csv", tmp_path / "a", "--json", tmp_path / "a"),
        ):
            assert labkit("grade", reference, "--reference", reference, *arguments).exit_code == 2

    def test_grade_refuses_a_host_without_confinement(self, tmp_path, monkeypatch):
        monkeypatch.setattr("labkit.course.sandbox.confine.confinement_problem", lambda: "this computer cannot")
        done = labkit("grade", tmp_path, "--reference", toy.write(tmp_path, toy.notebook()))
        assert done.exit_code == 2
        assert done.stderr == "Error: Nothing was graded: this computer cannot.\n"

    @pytest.fixture
    def without(self, monkeypatch):
        """Simulate that a package is not installed."""
        import importlib.util

        find = importlib.util.find_spec

        def take_away(missing):
            monkeypatch.setattr(
                "importlib.util.find_spec", lambda name, *more: None if name == missing else find(name, *more)
            )

        return take_away

    def given_out(self, tmp_path):
        """(reference, released notebook) of the toy, with a bundle beside the notebook."""
        reference = toy.write(tmp_path, toy.notebook())
        return reference, write_release(tmp_path / "out", release(parse(toy.notebook(), "m"), "first"), {}, {}).notebook

    @pytest.mark.parametrize("missing", ["nbval", "pytest"])
    @pytest.mark.parametrize("command", ["assign", "check", "grade"])
    def test_missing_packages_are_reported_with_the_install_command(self, tmp_path, without, missing, command):
        reference, notebook = self.given_out(tmp_path)
        without(missing)
        arguments = {
            "assign": ("assign", reference, "--out", tmp_path / "new"),
            "check": ("check", notebook),
            "grade": ("grade", notebook, "--reference", reference),
        }
        done = labkit(*arguments[command])
        assert done.exit_code == 2
        assert f"{missing} must be installed" in done.stderr
        assert "pip install" in done.stderr

    def test_errors_in_arguments_are_reported_before_missing_packages(self, tmp_path, without):
        reference, notebook = self.given_out(tmp_path)
        without("pytest")
        (tmp_path / "file").write_text("")
        for arguments, message in (
            (("assign", tmp_path / "no.ipynb", "--out", tmp_path), "no.ipynb' cannot be read"),
            (("assign", tmp_path / "file", "--out", tmp_path), "not a notebook"),
            (("assign", reference, "--out", tmp_path / "file"), "cannot be created"),
            (("check", tmp_path / "no.ipynb"), "no.ipynb' cannot be read"),
            (("check", notebook, "--bundle", tmp_path / "no.json"), "no.json' cannot be read"),
            (("grade", tmp_path / "no.zip", "--reference", reference), "there is no"),
            (("grade", notebook, "--reference", tmp_path / "no.ipynb"), "no.ipynb' cannot be read"),
            (("grade", notebook, "--reference", reference, "--csv", tmp_path), "cannot be written"),
        ):
            done = labkit(*arguments)
            assert (done.exit_code, message in done.stderr) == (2, True), (arguments, done.stderr)
            assert "install" not in done.stderr


NO_FILTERS = """
import ctypes, struct, sys
# a service or container that forbids further filters: prctl(PR_SET_SECCOMP) is refused, all else is allowed
lines = [(0x20, 0, 0, 0), (0x15, 0, 3, {prctl}), (0x20, 0, 0, 16), (0x15, 0, 1, 22), (6, 0, 0, 0x50001), (6, 0, 0, 0x7FFF0000)]
program = b"".join(struct.pack("HBBI", *line) for line in lines)
held = ctypes.create_string_buffer(program, len(program))
about = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(held))
libc, zero = ctypes.CDLL(None), ctypes.c_ulong(0)
assert libc.prctl(38, ctypes.c_ulong(1), zero, zero, zero) == 0
assert libc.prctl(22, ctypes.c_ulong(2), ctypes.create_string_buffer(about, len(about)), zero, zero) == 0
from labkit.cli import main
main(sys.argv[1:])
"""
PRCTL = {"x86_64": 157, "aarch64": 167}


@pytest.mark.skipif(bool(confinement_problem()), reason=f"there are filters on Linux only: {confinement_problem()}")
class TestAHostThatForbidsFilters:
    def run(self, *arguments):
        script = NO_FILTERS.format(prctl=PRCTL[platform.machine()])
        command = [sys.executable, "-c", script, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True)

    def test_grade_reports_that_the_host_cannot_confine(self, tmp_path):
        reference = toy.write(tmp_path, toy.notebook())
        done = self.run("grade", tmp_path, "--reference", reference, "--csv", tmp_path / "marks.csv")
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith("Error: Nothing was graded: ")
        assert "cannot be confined on this host: prctl(22) failed with error 1" in done.stderr
        assert "reference" not in done.stderr
        assert not (tmp_path / "marks.csv").exists()

    def test_a_lower_resource_limit_of_the_host_is_reported(self):
        ask = "import resource as r; r.setrlimit(r.RLIMIT_CPU, (5, 5)); from labkit.course.sandbox import confine; "
        arguments = [sys.executable, "-c", f"{ask}print(confine.confinement_problem())"]
        done = subprocess.run(arguments, capture_output=True, text=True)
        assert os.geteuid() == 0 or "cannot be set to 10 (the limit of this process is 5)" in done.stdout, done


class TestUnsavedWarnings:
    """Detection of unsaved changes: whether the file equals the notebook on the screen. Times are seconds since 1970."""

    def warnings(self, tmp_path, ran="", saved=1000.0, now=1000.0, busy=0.0, **environment):
        return unsaved_warnings(tmp_path / "toy.ipynb", ran, saved, now, environment, busy)

    def test_no_warning_without_activity_data(self, tmp_path):
        assert self.warnings(tmp_path, now=1e6) == []

    def test_a_cell_that_ran_after_the_save_is_a_warning(self, tmp_path):
        assert "ran after" in self.warnings(tmp_path, ran="1970-01-01T00:20:00Z")[0]
        assert self.warnings(tmp_path, ran="1970-01-01T00:10:00Z") == []

    def test_kernel_activity_after_the_save_is_a_warning(self, tmp_path):
        (message,) = self.warnings(tmp_path, now=1180.0, busy=1120.0)
        assert "busy 1 minute ago, and the file was saved 3 minutes ago" in message
        assert self.warnings(tmp_path, now=1180.0, busy=1005.0) == []

    def test_check_in_the_notebook_warns_of_unsaved_changes(self, tmp_path):
        (message,) = self.warnings(tmp_path, now=1180.0, JPY_SESSION_NAME="/home/x/toy.ipynb")
        assert "last saved 3 minutes ago" in message
        assert self.warnings(tmp_path, now=1005.0, JPY_SESSION_NAME="/home/x/toy.ipynb") == []
        assert self.warnings(tmp_path, now=1180.0, JPY_SESSION_NAME="/home/x/other.ipynb") == []


def test_check_warns_if_code_is_not_confined(tmp_path, monkeypatch):
    monkeypatch.setattr("labkit.course.grading.check.confinement_problem", lambda: "this computer cannot")
    monkeypatch.setattr(
        "labkit.course.grading.check.grade_single",
        lambda key, submission, harness: Result(submission.student, submission.path, ()),
    )
    made = release(parse(toy.notebook(), "m"), "first")
    notebook = write_release(tmp_path, made, {}, {}).notebook
    assert "it can only compute" in labkit("check", notebook).stderr


def test_a_report_that_cannot_be_written_does_not_affect_the_others(tmp_path, monkeypatch):
    def write(path, text, sync):
        if path.suffix == ".json":
            raise OSError(errno.ENOSPC, "No space left on device")
        write_text(path, text, sync)

    base = parse(toy.notebook(), "m")
    nothing = Result(Student("half \ud83d"), "x.ipynb", zero_scores(base), notes=("half \ud83d",))
    monkeypatch.setattr(reports, "write_text", write)
    monkeypatch.setattr(batch, "make_key", lambda base, variant, harness: GradingKey(base, {}))
    monkeypatch.setattr(batch, "grade_all", lambda key, submissions, harness, jobs, done: done(0, nothing))
    monkeypatch.setattr(reports, "file_names", lambda students: ["half.html"])
    reference = tmp_path / "reference.ipynb"
    reference.write_text(json.dumps(toy.notebook()))
    done = labkit("grade", reference, "--reference", reference, "--json", tmp_path / "a.json", "--csv", tmp_path / "a.csv",
                  "--html", tmp_path)  # fmt: skip
    assert done.exit_code == 1
    assert "a.json cannot be written: No space left on device" in done.stderr
    assert "half ?" in (tmp_path / "a.csv").read_text()
    assert "half ?" in (tmp_path / "half.html").read_text()
    assert "1 students, 1 submissions" in done.stdout


SEED = "autumn"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A folder with a reference notebook and its release."""
    folder = tmp_path_factory.mktemp("course")
    reference = toy.write(folder, toy.notebook())
    done = labkit("assign", reference, "--out", folder / "out", "--variant", SEED)
    assert done.exit_code == 0, done.stderr
    assert "toy: 8 points by tests and 2 by hand; the reference notebook passes all tests." in done.stdout
    return folder


@pytest.mark.slow
class TestCourse:
    """One course from release to grading, with a variant."""

    def solved(self, course, **sources):
        """The released notebook solved; the factor is taken from the variant's text."""
        released = json.loads((course / "out" / "toy.ipynb").read_text())
        text = "".join(released["cells"][0]["source"])
        factor = {"twice": 2, "three": 3, "five": 5}[text.split("Scale it ")[1].split()[0].rstrip(".")]
        right = toy.RIGHT["q1"].replace("2 *", f"{factor} *")
        return toy.solve(released, **{"q1": right, **sources})

    def test_check_ignores_the_stored_outputs_of_a_solution(self, course):
        raw = self.solved(course)
        stored = {"output_type": "stream", "name": "stdout", "text": "8"}
        toy.find(raw, "q3-test").update(outputs=[stored], execution_count=1)
        toy.find(raw, "q4-why")["source"] = "Because."
        done = labkit("check", toy.write(course, raw, "renamed.ipynb"), "--bundle", course / "out" / "toy.bundle.json")
        assert done.exit_code == 0, done.stdout + done.stderr
        assert "NO" not in done.stdout
        assert "by hidden tests" in done.stdout
        assert ["q1", "4", "of", "4", "yes", "so", "far;"] in [line.split()[:7] for line in done.stdout.splitlines()]
        assert not done.stderr

    def test_check_shows_hints(self, course):
        wrong = self.solved(course, q1=toy.RIGHT["q1"].replace("2 *", "-2 *"), q3="# q3 (keep this line)\nanswer = 8")
        path = toy.write(course, wrong, "wrong.ipynb")
        os.utime(path, (1e9, 1e9))
        done = labkit("check", path, "--bundle", course / "out" / "toy.bundle.json")
        assert done.exit_code == 1
        assert "NO" in done.stdout
        assert "the sign is lost: did you square?" in done.stdout
        assert "it printed '8' where '7' was expected" in done.stdout
        assert "days ago" in done.stdout
        assert "Warning: q4 is graded by hand, and its answer is empty." in done.stderr

    def test_grade_reads_a_moodle_zip(self, course):
        with zipfile.ZipFile(course / "all.zip", "w") as archive:
            for i, (name, raw) in enumerate(
                {"Ada": self.solved(course), "Bob": self.solved(course, q3="# q3 (keep this line)\nanswer = 8")}.items()
            ):
                archive.writestr(f"{name} [bold]L_{i}_assignsubmission_file_/toy.ipynb", json.dumps(raw))
            archive.writestr("Eve_9_assignsubmission_file_/toy.ipynb", b"{")
            archive.writestr("../../evil.ipynb", b"{}")
        out = course / "reports"
        done = labkit(
            "grade", course / "all.zip", "--reference", course / "reference.ipynb", "--variant", SEED, "--csv", out / "g.csv",
            "--json", out / "g.json", "--junit", out / "g.xml", "--html", out / "html", "--jobs", 2,
        )  # fmt: skip
        assert done.exit_code == 0, done.stderr
        with (out / "g.csv").open(newline="") as stream:
            grades = {row["Identifier"]: row["Grade"] for row in csv.DictReader(stream)}
        assert grades == {"Participant 0": "8", "Participant 1": "7", "Participant 9": "0", "": "0"}
        assert json.loads((out / "g.json").read_text())["assignment"] == "toy"
        assert ElementTree.parse(out / "g.xml").getroot()[0].get("failures") == "1"
        assert len(list((out / "html").iterdir())) == 4
        assert "[bold]" in done.stdout  # a name is no markup
        assert "it is not JSON" in done.stdout
        assert "is outside its folder" in done.stdout
        assert "2 that could not be graded" in done.stdout
        assert [line.split() for line in done.stdout.splitlines() if line.startswith("q3 ")] == [
            ["q3", "1", "of", "4", "25%", "0.25"]
        ]
        assert "check --variant" not in done.stderr

    def test_a_hostile_submission_does_not_affect_a_canvas_batch(self, course, here):
        right = "".join(toy.find(self.solved(course), "q1")["source"])
        sources = {
            "ada_LATE": right,
            "hoards": right.replace("return", "[bytearray(10**9) for _ in range(99)]; return"),
            "half": f"{right}\n# \ud83d",
        }
        with zipfile.ZipFile(course / "canvas.zip", "w") as archive:
            for i, (name, source) in enumerate(sources.items()):
                archive.writestr(f"{name}_{10 + i}_{90 + i}_toy.ipynb", json.dumps(self.solved(course, q1=source)))
        out = course / "canvas"
        done = labkit("grade", course / "canvas.zip", "--reference", course / "reference.ipynb", "--variant", SEED,
                      "--csv", out / "g.csv", "--html", out, "--jobs", 2)  # fmt: skip
        assert done.exit_code == 0, done.stderr
        with (out / "g.csv").open(newline="") as stream:
            rows = {row["ID"]: (row["A toy"], row["q1 Current Points"]) for row in csv.DictReader(stream)}
        assert rows == {"": ("10", "(read only)"), "10": ("8", "4"), "11": ("4", "0"), "12": ("4", "0")}
        assert "submitted late" in (out / "ada_10.html").read_text()
        assert "MemoryError" in (out / "hoards_11.html").read_text()

    def test_a_signal_ends_all_processes_and_removes_all_files(self, tmp_path):
        """It arrives while the reference notebook is graded; `test_batch.py` sends the other signals."""
        raw = toy.notebook()
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        waits = f"import threading\nopen({str(fifo)!r}, 'w').write('here')\nthreading.Event().wait()\n"
        toy.find(raw, "q1-test")["source"] = waits + toy.T1
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        arguments = [
            "grade",
            fifo.parent,
            "--reference",
            toy.write(tmp_path, raw, "toy.ipynb"),
            "--csv",
            scratch / "g.csv",
        ]
        start = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        process = subprocess.Popen(
            [sys.executable, "-c", f"{start}from labkit.cli import main; main(sys.argv[1:])", *map(str, arguments)],
            env={**os.environ, "TMPDIR": str(scratch)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert fifo.read_text() == "here"
        family = [each.pid for each in psutil.Process(process.pid).children(recursive=True)]
        process.send_signal(signal.SIGINT)
        out, message = process.communicate()
        assert (process.returncode, out) == (130, "")
        assert message.endswith("Interrupted.\n")
        assert len(family) >= 3  # pytest, the kernel, the fork server
        wait_for_ends(family)
        assert list(scratch.iterdir()) == []
