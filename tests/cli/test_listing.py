"""`labkit strategies`: the introductory strategies first, the others by family; options with their allowed names."""

from __future__ import annotations

from labkit.strategies import FAMILIES, STRATEGIES

NINE = [
    "sync-ps", "async-ps", "ssp", "backup-workers", "ring-all-reduce", "local-sgd", "tensor-parallel", "pipeline", "hybrid",
]  # fmt: skip


def test_strategies_lists_the_nine_introductory_ones_first_then_by_family(labkit):
    lines = labkit("strategies").stdout.splitlines()
    names = [line.split()[0] for line in lines]
    assert names[:9] == NINE
    assert names == [name for family in FAMILIES.values() for name in family] == list(STRATEGIES)


def test_each_line_has_the_family_and_the_summary(labkit):
    lines = iter(labkit("strategies").stdout.splitlines())
    for family, members in FAMILIES.items():
        for strategy in members.values():
            line = next(lines)
            assert f" {family} " in line
            assert line.endswith(strategy.summary)
            assert strategy.summary


def option_line(labkit, strategy, name):
    lines = labkit("strategies", strategy).stdout.splitlines()
    return next(line for line in lines if line.split()[0] == name)


def test_options_list_the_names_that_they_accept(labkit):
    assert "(sgd, momentum:[MOMENTUM], nesterov:[MOMENTUM], adagrad:[EPSILON]" in option_line(
        labkit, "ssp", "optimizer"
    )
    assert "(constant, step:EVERY:[FACTOR], cosine:TOTAL:[FLOOR], warmup:UPDATES)" in option_line(
        labkit, "ssp", "schedule"
    )
    assert "(top-k:[K], sign-sgd, qsgd:[BITS]" in option_line(labkit, "sync-ps", "codec")
    assert "(range:[ROWS], hash:[SEED], consistent-hash:[POINTS]:[SEED])" in option_line(
        labkit, "sparse-ps", "placement"
    )


def test_an_all_reduce_accepts_linear_codecs_only(labkit):
    assert "(float16, power-sgd:[RANK])" in option_line(labkit, "ring-all-reduce", "codec")
