"""The pages about strategies: every list and table has all strategies, and its numbers are right."""

from __future__ import annotations

import re

import pytest

from benchmarks import slow_worker
from benchmarks.slow_worker_table import PAGE, table_of_page
from docs._ext.strategy_catalogue import own_options, papers, strategy_list, strategy_pages
from labkit.options import options_of
from labkit.strategies import STRATEGIES

ROWS = re.findall(r"^\| `([\w-]+)` \| (.*) \| ([\d.]+)% \| ([\d.]+)% \| ([\d.]+)% \|$", table_of_page(), re.MULTILINE)


def test_the_list_has_every_strategy_in_the_order_of_the_registry():
    assert re.findall(r"\(generated/([\w-]+)\.md\) \| `([\w-]+)`", strategy_list()) == [
        (name, name) for name in STRATEGIES
    ]


def test_the_page_of_a_strategy_has_all_its_options_roles_and_source():
    pages = strategy_pages()
    for name, strategy in STRATEGIES.items():
        page = pages[name]
        tables = page[page.index("## Options") : page.index("## Roles")]
        assert sorted(re.findall(r"^\| `(\w+)` \|", tables, re.MULTILINE)) == sorted(options_of(strategy)), name
        own = tables.partition("All strategies have")[0]
        assert set(own_options(strategy)) <= set(re.findall(r"`(\w+)`", own)), name
        roles = page[page.index("## Roles") : page.index("## Source code")]
        assert {"worker", "chief"} <= set(re.findall(r"^\| `(\w+)` \|", roles, re.MULTILINE)), name
        assert ("`server`" in roles) == (strategy.uses_servers and name != "hybrid"), name
        assert page.count("```text\n") >= 1, name  # the pseudo-code
        assert "1e" not in re.sub(r"`[^`]*`", "", tables), name  # limits are written as people write numbers


def test_every_strategy_has_a_source_with_a_year():
    assert [name for name in STRATEGIES if not re.search(r"\b(19|20)\d\d\b", papers(STRATEGIES[name]))] == []


def test_every_strategy_has_its_names_in_other_frameworks():
    table = (PAGE.parent / "other_frameworks.md").read_text()
    assert re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE) == list(STRATEGIES)
    for other in (
        "MirroredStrategy", "MultiWorkerMirroredStrategy", "ParameterServerStrategy", "TPUStrategy", "DDP", "FSDP", "Horovod",
        "BytePS", "Ray",
    ):  # fmt: skip
        assert other in table


def test_the_slow_worker_has_a_row_for_every_strategy():
    assert [row[0] for row in ROWS] == list(STRATEGIES) == [name for name in STRATEGIES if name in slow_worker.THEORY]


def test_theory_and_measurement_agree():
    """Virtual time within 1% of the undisturbed throughput, processes within 10%."""
    for name, words, theory, simulated, measured in ROWS:
        assert words == slow_worker.THEORY[name][0], name
        assert float(theory) == pytest.approx(100 * slow_worker.THEORY[name][1], abs=0.051), name
        assert float(simulated) == pytest.approx(float(theory), abs=1), name
        assert float(measured) == pytest.approx(float(theory), abs=10), name


@pytest.mark.slow
@pytest.mark.sample(slow=6)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_virtual_time_is_what_the_simulator_gives(row):
    assert 100 * slow_worker.simulated(row[0]) == pytest.approx(float(row[3]), abs=0.051)
