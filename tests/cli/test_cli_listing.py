"""`labkit strategies`: the nine first, the rest by family; options with their allowed names."""

from __future__ import annotations

from labkit.strategies import FAMILIES, STRATEGIES

NINE = [
    "sync-ps", "async-ps", "ssp", "backup-workers", "ring-all-reduce", "local-sgd", "tensor-parallel", "pipeline", "hybrid",
]  # fmt: skip


def test_nine_first_then_family_by_family(labkit):
    lines = labkit("strategies").stdout.splitlines()
    names = [line.split()[0] for line in lines]
    assert names[:9] == NINE
    assert names == [name for family in FAMILIES.values() for name in family] == list(STRATEGIES)


def test_every_line_says_family_and_what_it_does(labkit):
    lines = iter(labkit("strategies").stdout.splitlines())
    for family, members in FAMILIES.items():
        for made in members.values():
            line = next(lines)
            assert f" {family} " in line
            assert line.endswith(made.summary)
            assert made.summary


def option(labkit, strategy, name):
    lines = labkit("strategies", "--options", strategy).stdout.splitlines()
    return next(line for line in lines if line.split()[0] == name)


def test_a_option_says_which_names_it_takes(labkit):
    assert "(sgd, momentum:[MOMENTUM], nesterov:[MOMENTUM], adagrad:[EPSILON]" in option(labkit, "ssp", "optimizer")
    assert "(constant, step:EVERY:[FACTOR], cosine:TOTAL:[FLOOR], warmup:UPDATES)" in option(labkit, "ssp", "schedule")
    assert "(top-k:[K], sign-sgd, qsgd:[BITS]" in option(labkit, "sync-ps", "codec")
    assert "(range:[ROWS], hash:[SEED], consistent-hash:[POINTS]:[SEED])" in option(labkit, "sparse-ps", "placement")


def test_an_all_reduce_takes_linear_codecs_only(labkit):
    assert "(float16, power-sgd:[RANK])" in option(labkit, "ring-all-reduce", "codec")
