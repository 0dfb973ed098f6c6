"""labkit/strategies/README.md: its generated parts are up to date, and every table lists all strategies."""

from __future__ import annotations

import re

import pytest

from benchmarks import slow_worker, strategies_readme
from labkit.strategies import FAMILIES, STRATEGIES

ROWS = re.findall(
    r"^\| `([\w-]+)` \| (.*) \| ([\d.]+)% \| ([\d.]+)% \| ([\d.]+)% \|$",
    strategies_readme.section("slow worker"),
    re.MULTILINE,
)


def test_the_list_is_the_registry():
    assert strategies_readme.section("list") == strategies_readme.list_section()
    assert strategies_readme.section("list").count("\n**") + 1 == len(FAMILIES)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_has_a_source_with_a_year(name):
    assert re.search(r"\b(19|20)\d\d\b", strategies_readme.source(STRATEGIES[name]))


def test_every_strategy_has_its_names_elsewhere():
    text = strategies_readme.README.read_text()
    table = text[text.index("## Names in other frameworks") : text.index("## A worker that is")]
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == list(STRATEGIES)
    for other in (
        "MirroredStrategy", "MultiWorkerMirroredStrategy", "ParameterServerStrategy", "TPUStrategy", "DDP", "FSDP", "Horovod",
        "BytePS", "Ray",
    ):  # fmt: skip
        assert other in table


def test_the_slow_worker_has_a_row_for_every_strategy():
    assert [row[0] for row in ROWS] == list(STRATEGIES) == [name for name in STRATEGIES if name in slow_worker.THEORY]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_theory_and_measurement_agree(row):
    """Virtual time within 1% of the undisturbed throughput, processes within 10%."""
    name, words, theory, simulated, measured = row
    assert words == slow_worker.THEORY[name][0]
    assert float(theory) == pytest.approx(100 * slow_worker.THEORY[name][1], abs=0.051)
    assert float(simulated) == pytest.approx(float(theory), abs=1)
    assert float(measured) == pytest.approx(float(theory), abs=10)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_virtual_time_is_what_the_simulator_gives(row):
    assert 100 * slow_worker.simulated(row[0]) == pytest.approx(float(row[3]), abs=0.051)
