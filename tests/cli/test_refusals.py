"""Bad input: one sentence on standard error with the error and the allowed values; exit code 2; no standard output."""

from __future__ import annotations

import pytest

CASES = {
    "strategy": ("simulate --strategy asink-ps", "There is no strategy 'asink-ps'. Did you mean 'async-ps'?"),
    "option": (
        "simulate --set compensate=no",
        "AsyncPS has no setting 'compensate'. Did you mean 'compensation'? Settings: ",
    ),
    "option form": ("simulate --set staleness-aware", "'staleness-aware' is not OPTION=VALUE."),
    "option value": (
        "simulate --set chief-works=maybe",
        "chief_works='maybe' is not allowed; chief_works is True or False.",
    ),
    "option limits": ("simulate --learning-rate 100", "learning_rate is a number from 0.000001 to 10"),
    "option twice": ("simulate --learning-rate 1 --set learning_rate=2", "set one option twice"),
    "optimizer": ("simulate --optimizer adm", "Did you mean 'adam'?"),
    "data set": ("simulate --dataset digitz", "There is no data set 'digitz'. Did you mean 'digits'?"),
    "workers": ("simulate --workers 0", "workers=0 is not allowed; workers is a whole number from 1"),
    "workers text": (
        "simulate --workers many",
        "workers='many' is not allowed; workers is a whole number from 1 to 100,000",
    ),
    "servers": ("simulate --servers 0", "it needs at least 1"),
    "servers of a ring": ("simulate --strategy ring-all-reduce --servers 1", "RingAllReduce has no servers"),
    "too many servers": ("simulate --dataset moons --hidden 2 --servers 5000", "so at most"),
    "too few samples": ("simulate --workers 5000", "each needs at least one"),
    "hidden": ("simulate --hidden 0", "whole numbers from 1 to 100000"),
    "batch size": ("simulate --batch-size 0", "batch_size=0 is not allowed"),
    "dtype": ("simulate --dtype float16", "dtype is one of"),
    "partition": ("simulate --partition evn", "even"),
    "option of data": ("simulate --dataset spirals --option arm=3", "Did you mean 'arms'?"),
    "option of none": ("simulate --option arms=3", "the data set digits has no options"),
    "shape": ("simulate --strategy hybrid --set shape=3x2", "Hybrid"),
    "stages": ("simulate --strategy pipeline --workers 3 --hidden 8", "this one has 2"),
    "codec": ("simulate --strategy ring-all-reduce --set codec=top-k", "not linear"),
    "spring": ("simulate --strategy easgd --set rho=100", "rho is at most 10"),
    "seed": ("simulate --seed -1", "seed=-1 is not allowed"),
    "budget": ("simulate --updates 0", "updates=0 is not allowed"),
    "accuracy": ("simulate --accuracy 1.5", "accuracy is a number from 0 to 1"),
    "accuracy of a regression": ("simulate --dataset quadratic --accuracy 0.9", "there is no accuracy"),
    "timing only": ("simulate --timing-only --epochs 1", "A timing-only run needs"),
    "distribution": ("simulate --compute exponentail:0.1", "Did you mean 'exponential'?"),
    "distribution numbers": ("simulate --compute exponential:x", "numbers in seconds"),
    "latency": ("simulate --latency -1", "latency=-1.0 is not allowed"),
    "bandwidth": ("simulate --bandwidth nan", "bandwidth=nan is not allowed"),
    "slow form": ("simulate --slow worker-2", "give ROLE:FACTOR"),
    "slow factor": ("simulate --slow worker-2:0", "a factor from 0.001 to 1000"),
    "slow role": ("simulate --slow worker-9:5", "There is no role 'worker-9'. Did you mean 'worker-"),
    "fault": ("simulate --fault kil:worker-1@2", "There is no fault 'kil'. Did you mean 'kill'?"),
    "fault form": ("simulate --fault kill:worker-1@soon", "'kill:worker-1@soon' is not a fault as 'kill:worker-1@2.0'"),
    "fault without a time": (
        "simulate --fault kill:worker-1",
        "give the time in seconds from the start, as kill:worker-1@2",
    ),
    "fault times": ("train --fault freeze:worker-1@3-1", "it has to end after it has begun"),
    "fault role": ("simulate --fault kill:worker-9@1", "There is no role 'worker-9'. Did you mean 'worker-"),
    "fault of one": (
        "compare sync-ps ring-all-reduce --engine simulated --fault drop:worker:server:0.1",
        "There is no role 'server'. Allowed: chief, worker",
    ),
    "engine": ("train --engine simulator", "There is no engine 'simulator'. Did you mean 'simulated'?"),
    "pace": ("simulate --pace deterministic:0.1", "--pace belongs to --engine dask"),
    "scheduler": ("simulate --scheduler tcp://x:1", "which takes --compute, --latency, --bandwidth"),
    "compute": ("train --compute deterministic:0.1", "--compute belongs to --engine simulated"),
    "evaluation time on dask": ("train --evaluation-time 0.1", "--evaluation-time belongs to --engine simulated"),
    "evaluation time": ("simulate --evaluation-time -1", "evaluation_time is a number from 0 to 1,000,000"),
    "latency on dask": ("train --latency 0.1", "which takes --pace, --scheduler"),
    "bandwidth on dask": ("compare sync-ps async-ps --bandwidth 1e6", "--bandwidth belongs to --engine simulated"),
    "compare one": ("compare sync-ps", "two strategies or more"),
    "compare unknown": ("compare sync-ps ring --engine simulated", "There is no strategy 'ring'."),
    "compare option": ("compare sync-ps async-ps --set redcue=sum --engine simulated", "Did you mean 'reduce'?"),
    "options of": ("strategies asyncps", "Did you mean 'async-ps'?"),
    "command": ("simulat", "There is no command 'simulat'. Did you mean 'simulate'?"),
    "unknown option": ("simulate --worker 3", "--worker"),
    "option of other commands": (
        "doctor --workers 3",
        "It is an option of calibrate, compare, forecast, simulate, sweep, train. Options: --help, --json",
    ),
    "option before the command": (
        "--workers 3 simulate",
        "--workers is an option of calibrate, compare, forecast, simulate, sweep, train and is written after the "
        "command, as in: labkit ",
    ),
    "misspelt before the command": (
        "--wrkers 3 simulate",
        "labkit has no option '--wrkers'. Did you mean '--workers'? ",
    ),
    "option of nothing": ("--bogus", "labkit has no option '--bogus'. Options before the command: --help, --version"),
    "short option": ("strategies -w 3", "labkit strategies has no option '-w'. Options: --help, -h."),
    "version after the command": (
        "doctor --version",
        "--version is written before the command, as in: labkit --version.",
    ),
    "version with a value": ("--version=3", "'--version' takes no value"),
    "flag with a value": ("doctor --json=3", "'--json' takes no value; write it without one, or leave it out."),
    "option without a value": ("compare --scheduler", "--scheduler needs a value after it, as in: --scheduler"),
    "no command": ("--", "A command is missing after labkit; allowed: assign, calibrate, check"),
    "missing argument": ("check", "NOTEBOOK is missing; the shortest form is `labkit check NOTEBOOK`."),
    "missing option": (
        "grade x",
        "--reference FILE is missing; the shortest form is `labkit grade SUBMISSIONS... --reference FILE`.",
    ),
    "argument too many": (
        f"check {__file__} b",
        "unexpected extra argument (b). Allowed: `labkit check NOTEBOOK [OPTIONS]`",
    ),
    "number": (
        f"grade x --reference {__file__} --jobs nan",
        "--jobs N: 'nan' is not a valid integer. Allowed: a whole number",
    ),
    "option of jupyter": ("lab --prot 3", "Did you mean '--port'? Options: --help, --no-browser, --port, -h, [-- J"),
    "folder": ("simulate --trace no/such/folder/run.npz", "there is no folder"),
    "figure": ("simulate --figure run.docx", "the name of a figure ends in"),
}


def test_bad_input_prints_one_sentence_and_exits_with_2(labkit):
    wrong = []
    for name, (command, message) in CASES.items():
        result = labkit(*command.split(), *(["--json"] if command.startswith(("simulate ", "train ")) else []))
        one_line = len(result.stderr.strip().splitlines()) == 1
        if (result.exit_code, result.stdout) != (2, "") or message not in result.stderr or not one_line:
            wrong.append(f"{name}: {command} exits with {result.exit_code}: {result.stdout}{result.stderr}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_bad_input_prints_no_traceback_in_a_process(labkit_process):
    result = labkit_process("simulate", "--dataset", "digitz")
    assert (result.returncode, result.stdout) == (2, b"")
    assert result.stderr.startswith(b"Error: There is no data set 'digitz'.")
