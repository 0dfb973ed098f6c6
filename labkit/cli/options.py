"""The options of `train`, `simulate` and `compare`: derived from the declarations, and read into a `RunSpec`.

Names, types, ranges, units, defaults and help are those of the strategy, the problem, the budget and the cluster. This module
only declares which of them are options of a command, in which section of the help, and their names if these differ. All
values are parsed by `RunSpec.read`, as those of a share text.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..options import Option
    from ..spec import RunSpec

__all__ = ["Asked", "Files", "RunCommand", "asked", "file_options", "run_specs", "writable_files"]

# sections of the help: title, part of the specification, and its options, as {name on the command line: declared name}
SECTIONS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Strategy", "strategy", {"learning-rate": "learning_rate", "optimizer": "optimizer", "chief-works": "chief_works"}),
    (
        "Problem", "problem",
        {"dataset": "data", "hidden": "hidden", "batch-size": "batch_size", "activation": "activation", "dtype": "dtype",
         "partition": "partition", "test-fraction": "test_fraction", "seed": "seed", "timing-only": "timing_only"},
    ),
    (
        "Budget (without any: accuracy 0.95, or 20 s)", "budget",
        {name: name for name in ("updates", "samples", "epochs", "seconds", "accuracy")},
    ),
    (
        "Cluster", "cluster",
        {"workers": "workers", "servers": "servers", "server-time": "server_time", "slow": "slow", "replicas": "replicas",
         "max-workers": "max_workers", "patience": "patience", "checkpoint-every": "checkpoint_every"},
    ),
    (
        "Cluster, only with --engine simulated", "cluster",
        {"compute": "compute", "latency": "latency", "bandwidth": "bandwidth", "cores": "cores",
         "restart-after": "restart_after", "checkpoint-time": "checkpoint_time", "evaluation-time": "evaluation_time"},
    ),
    ("Cluster, only with --engine dask", "cluster", {"pace": "compute", "scheduler": "scheduler"}),
)  # fmt: skip
OF_ENGINE = {"simulated": SECTIONS[4][2], "dask": SECTIONS[5][2]}
AFTER = {  # options that are not part of the specification: the section that they end, and their declaration
    "sets": ("Strategy", ["--set", "sets"], {"multiple": True, "metavar": "OPTION=VALUE",
             "help": "Any option of the strategy (labkit strategies --options NAME lists them); repeatable."}),
    "options": ("Problem", ["--option", "options"], {"multiple": True, "metavar": "NAME=VALUE",
                "help": "An option of the data set, as rows=100000 of clicks; repeatable."}),
    "faults": ("Cluster", ["--fault", "faults"], {"multiple": True, "metavar": "FAULT",
               "help": "What goes wrong, and when (in s): kill:worker-1@2.0, freeze:worker-1@1-3, slow:worker-2:5@2-4, "
               "delay:worker-1:server-0:0.1, drop:worker:server:0.05, partition:worker-1:*@2-4, preempt:worker:0.01; "
               "repeatable."}),
}  # fmt: skip
SEVERAL = ("hidden", "slow")  # may be repeated; the values are joined with commas
METAVARS = {"data": "NAME", "hidden": "WIDTH", "slow": "ROLE:FACTOR", "partition": "HOW", "scheduler": "ADDRESS"}
USUAL = {  # defaults that are not plain values
    "optimizer": "sgd", "partition": "even", "dtype": "the data set's own", "compute": "deterministic:0.01",
    "pace": "full speed", "dataset": "digits, or what the strategy needs", "hidden": "128, or what the strategy needs",
}  # fmt: skip
ENDLESS = 1e6  # larger limits are not shown in the help
PICTURES = (".png", ".pdf", ".svg", ".jpg")


@dataclass(frozen=True)
class Asked:
    """The options given for a run. `given`: {name on the command line, with underscores: its text}, without defaults."""

    given: Mapping[str, str]
    sets: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class Files:
    """The result files of one run."""

    trace: str | None = None
    perfetto: str | None = None
    figure: str | None = None
    log: str | None = None


RESULTS = ("trace", "perfetto", "figure", "log", "as_json")
FILES = (
    click.option("--trace", metavar="FILE.npz", help="Keep everything that happened."),
    click.option("--perfetto", metavar="FILE.json", help="The same for https://ui.perfetto.dev."),
    click.option("--figure", metavar="FILE.png", help="A picture of the run."),
    click.option("--log", metavar="FILE", help="The run's log in words."),
)


# declaring ------------------------------------------------------------------------------------------------------------


class RunCommand(click.Command):
    """A command with the options of a run. They are made at the first access, so that slow imports are deferred."""

    _complete = False

    @property
    def params(self) -> list[click.Parameter]:
        """The command's own parameters, and those of a run."""
        if not self._complete:
            self._complete = True
            self._params.extend(run_options())
        return self._params

    @params.setter
    def params(self, own: list[click.Parameter]) -> None:
        self._params, self._complete = own, False

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options by sections, the command's own options first."""
        titles = ("Options", *(title for title, _, _ in SECTIONS), "Results")
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in titles}
        for param in self.get_params(ctx):
            row = param.get_help_record(ctx)
            if row is not None:
                section = "Results" if param.name in RESULTS else "Options"
                rows[getattr(param, "section", section)].append(row)
        for title, found in rows.items():
            with formatter.section(title):
                formatter.write_dl(found)


class RunOption(click.Option):
    """An option that belongs to a section of the help."""

    def __init__(self, section: str, names: list[str], **more: Any):
        super().__init__(names, **more)
        self.section = section


@functools.cache
def run_options() -> tuple[RunOption, ...]:
    """All options of a run, section by section."""
    from ..engines.cluster_spec import ClusterSpec
    from ..options import options_of
    from ..problem import Problem
    from ..roles.budget import Budget
    from ..strategies import Strategy

    parts: dict[str, Any] = {"strategy": Strategy, "problem": Problem, "budget": Budget, "cluster": ClusterSpec}
    made: list[RunOption] = []
    for title, part, names in SECTIONS:
        known = options_of(parts[part])
        made += [_option(title, name, known[declared]) for name, declared in names.items()]
        made += [RunOption(section, words, **more) for section, words, more in AFTER.values() if section == title]
    return tuple(made)


def _option(section: str, name: str, k: Option) -> RunOption:
    if k.type is bool:
        return RunOption(section, [f"--{name}"], is_flag=True, help=_help(name, k))
    more = {"metavar": _metavar(k), "multiple": k.name in SEVERAL, "help": _help(name, k)}
    return RunOption(section, [f"--{name}"], type=str, **more)


def _metavar(k: Option) -> str:
    if k.choices:
        return "|".join(str(choice) for choice in k.choices if choice)
    if k.names is not None:
        return "LAW" if k.unit else METAVARS.get(k.name, "NAME")
    return METAVARS.get(k.name) or ("N" if k.type is int else {"s": "SECONDS", "bytes/s": "BYTES/S"}.get(k.unit, "X"))


def _help(name: str, k: Option) -> str:
    """`Time of every message from node to node (0 to 1000 s; default 0 s).`"""
    unit, usual = f" {k.unit}" if k.unit else "", USUAL.get(name.replace("-", "_"))
    if usual is None and k.type in (int, float, str) and k.default is not None:
        usual = f"{k.default:g}{unit}" if isinstance(k.default, float) else str(k.default)
    about = [f"{k.low:g} to {k.high:g}{unit}"] if k.low is not None and k.high is not None and k.high < ENDLESS else []
    about += [f"default {usual}"] if usual else []
    about += ["repeatable"] if k.name in SEVERAL else []
    names = f": {', '.join(k.names)}" if k.names is not None and ":" not in k.help else ""
    return k.help[:1].upper() + k.help[1:] + names + (f" ({'; '.join(about)})" if about else "") + "."


def file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give `command` the options that name files."""
    for option in reversed(FILES):
        command = option(command)
    return command


# reading --------------------------------------------------------------------------------------------------------------


def asked(options: Mapping[str, Any]) -> Asked:
    """The options that were given, out of all that click passes to a command."""
    given = {}
    for _, _, names in SECTIONS:
        for name in (name.replace("-", "_") for name in names):
            value = options.get(name)
            if value is True:
                given[name] = "true"
            elif isinstance(value, tuple) and value:
                given[name] = ",".join(value)
            elif isinstance(value, str):
                given[name] = value
    return Asked(given, *(options.get(name, ()) for name in AFTER))


def writable_files(options: Mapping[str, Any]) -> Files:
    """The files that were given. Refuses unwritable ones before the run, not after it."""
    made = Files(**{field.name: options.get(field.name) for field in fields(Files)})
    for option, name in vars(made).items():
        if name is not None:
            _check_file(option, name)
    return made


def run_specs(names: tuple[str, ...], engine: str, wanted: Asked) -> list[RunSpec]:
    """The specification of a run of each of these strategies: problem, budget, cluster and faults are the same.

    Each of several strategies gets those options of `--set` that it has, and servers only if it uses any. Raises `BadInput`;
    every specification is checked as a whole.
    """
    from ..engines.cluster_spec import ENGINES, ClusterSpec, default_workers
    from ..errors import BadInput, nearest
    from ..spec import RunSpec

    if engine not in ENGINES:
        raise nearest("engine", engine, ENGINES)
    for owner, its in OF_ENGINE.items():
        for name in its:
            if owner != engine and name.replace("-", "_") in wanted.given:
                allowed = ", ".join(f"--{n}" for n in OF_ENGINE[engine])
                wrong = f"--{name} belongs to --engine {owner} and this is --engine {engine}"
                raise BadInput(f"{wrong}, which takes {allowed}.")
    strategies = [_strategy(name, names, wanted) for name in names]
    spec = RunSpec(cluster=ClusterSpec(engine, workers=default_workers(engine, wanted.given.get("scheduler"))))
    for strategy in strategies:
        spec = spec.changed(strategy=strategy)
    for _, part, its in SECTIONS:
        for name, declared in its.items() if part != "strategy" else ():
            if (text := wanted.given.get(name.replace("-", "_"))) is not None:
                spec = spec.changed(**{declared: spec.read(declared, text)})
    spec = replace(spec.changed(options=_data_options(spec, wanted.options)), faults=_faults(wanted.faults))
    made = [_for_strategy(spec, strategy, alone=len(names) == 1) for strategy in strategies]
    for one in made:
        one.check()
    return made


def _for_strategy(spec: RunSpec, strategy: Any, alone: bool) -> RunSpec:
    """The specification for one of the compared strategies."""
    spare = not alone and not strategy.uses_servers
    return replace(spec, strategy=strategy, cluster=replace(spec.cluster, servers=None) if spare else spec.cluster)


def _strategy(name: str, names: Iterable[str], wanted: Asked) -> Any:
    """The strategy of this command-line name, with the given options, and those of `--set` that it has."""
    from ..errors import BadInput, lacks
    from ..options import options_of, parse_option, read_option
    from ..strategies import strategy_by_name

    made, others = strategy_by_name(name), [strategy_by_name(other) for other in names]
    known, options = options_of(made), {}
    for text in wanted.sets:
        option = text.partition("=")[0].strip().replace("-", "_")
        if option not in known and len(others) > 1:
            if not any(option in options_of(other) for other in others):
                raise lacks("None of these strategies", "setting", option, {k for other in others for k in options_of(other)})
            continue
        option, value = parse_option(made.__name__, known, text)
        options[option] = value
    for flag, option in SECTIONS[0][2].items():
        if (given := wanted.given.get(option)) is not None:
            if option in options:
                raise BadInput(f"--set {option}={options[option]} and --{flag} {given} set one option twice; give one of them.")
            options[option] = read_option(made.__name__, known[option], given)
    return made(**options)


def _data_options(spec: RunSpec, texts: tuple[str, ...]) -> dict[str, Any]:
    """`("rows=100000",)` as values, by the declarations of the data set."""
    from ..data import dataset_options
    from ..errors import BadInput
    from ..options import parse_option

    known = dataset_options(spec.problem.name)
    if texts and not known:
        raise BadInput(f"--option {texts[0]}: the data set {spec.problem.name} has no options.")
    return dict(parse_option(spec.problem.name, known, text) for text in texts)


def _faults(texts: tuple[str, ...]) -> tuple[Any, ...]:
    """The fault schedule. A kill without a time is refused as a likely mistake."""
    from ..engines.commands import Kill
    from ..engines.faults import parse_fault
    from ..errors import BadInput

    faults = tuple(parse_fault(text) for text in texts)
    for text, fault in zip(texts, faults):
        if isinstance(fault, Kill) and "@" not in text:
            raise BadInput(f"--fault {text}: say when, in seconds from the beginning, as {text}@2; {text}@0 is at once.")
    return faults


def _check_file(option: str, name: str) -> None:
    """Refuse a file that cannot be written."""
    from ..errors import BadInput, shown
    from ..paths import as_path, reason

    path = Path(as_path(f"--{option}", name))
    folder = path.parent
    if os.path.isdir(path) or not os.path.isdir(folder):
        why = "it is a folder" if os.path.isdir(path) else f"there is no folder {str(folder)!r}"
        raise BadInput(f"--{option} {name}: {why}; give the name of a file in a folder that exists.")
    try:
        os.lstat(path)
    except FileNotFoundError:
        pass
    except OSError as error:  # a name that is too long
        raise BadInput(f"--{option} {shown(name)} cannot be written: {reason(error)}.") from None
    if not os.access(path if os.path.exists(path) else folder, os.W_OK):
        raise BadInput(f"--{option} {name} cannot be written: no permission.")
    if option == "figure" and path.suffix.lower() not in PICTURES:
        raise BadInput(f"--figure {name}: a picture's name ends in {', '.join(PICTURES)}.")
