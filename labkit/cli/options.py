"""The options of `train`, `simulate` and `compare`: derived from the declarations, and read into a `RunSpec`.

Names, types, ranges, units, defaults and help are declared by the strategy, the problem, the budget and the cluster.
This module only declares which of these options a command has, in which section of the help they are, and their names
on the command line if they differ. All values are parsed by `RunSpec.read`, like the values of a share text.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from ..options import Option
    from ..spec import RunSpec

# Sections of the help: title, part of the specification, and options, as {name on the command line: declared name}.
SECTIONS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("Strategy", "strategy", {"learning-rate": "learning_rate", "optimizer": "optimizer", "chief-works": "chief_works"}),
    (
        "Problem", "problem",
        {"dataset": "data", "hidden": "hidden", "batch-size": "batch_size", "activation": "activation", "dtype": "dtype",
         "partition": "partition", "class-weights": "class_weights",
         "test-fraction": "test_fraction", "validation": "validation", "seed": "seed", "timing-only": "timing_only"},
    ),
    (
        "Budget (without any: accuracy 0.95, or 20 s)", "budget",
        {name: name for name in ("updates", "samples", "epochs", "seconds", "accuracy", "loss")}
        | {"patience": "patience", "min-delta": "min_delta"},
    ),
    (
        "Cluster", "cluster",
        {"workers": "workers", "servers": "servers", "server-time": "server_time", "slow": "slow", "replicas": "replicas",
         "max-workers": "max_workers", "heartbeat-timeout": "heartbeat_timeout", "checkpoint-every": "checkpoint_every"},
    ),
    (
        "Cluster, only with --engine simulated", "cluster",
        {"compute": "compute", "latency": "latency", "bandwidth": "bandwidth", "cores": "cores",
         "restart-after": "restart_after", "checkpoint-time": "checkpoint_time", "evaluation-time": "evaluation_time",
         "costs": "costs"},
    ),
    ("Cluster, only with --engine dask", "cluster", {"pace": "compute", "scheduler": "scheduler"}),
)  # fmt: skip
OF_ENGINE = tuple(title for title, _, _ in SECTIONS[4:])
ENGINE_OPTIONS = {"simulated": SECTIONS[4][2], "dask": SECTIONS[5][2]}
# options that are not in the specification: {name: (section at whose end they are, names, declaration)}
EXTRA_OPTIONS: dict[str, tuple[str, list[str], dict[str, Any]]] = {
    "sets": ("Strategy", ["--set", "sets"], {"multiple": True, "metavar": "OPTION=VALUE",
             "help": "Any option of the strategy (labkit strategies NAME lists them); repeatable."}),
    "options": ("Problem", ["--option", "options"], {"multiple": True, "metavar": "NAME=VALUE",
                "help": "An option of the data set, as rows=100000 of clicks; repeatable."}),
    "faults": ("Cluster", ["--fault", "faults"], {"multiple": True, "metavar": "FAULT",
               "help": "A fault to inject, with its time in s: kill:worker-1@2.0, freeze:worker-1@1-3, slow:worker-2:5@2-4, "
               "limit:worker-1:10MB/s, delay:worker-1:server-0:0.1, drop:worker:server:0.05, partition:worker-1:*@2-4, "
               "preempt:worker:0.01; repeatable."}),
    "model": ("Problem", ["--model"], {"metavar": "MODULE:CLASS",
              "help": "A model of your own, instead of a network of dense layers: cnn:CNN is the class CNN in cnn.py of this "
              "folder. Also the name of a model that the module has made."}),
    "model_options": ("Problem", ["--model-option", "model_options"], {"multiple": True, "metavar": "NAME=VALUE",
                      "help": "An option of the model of --model, as channels=16; repeatable."}),
}  # fmt: skip
REPEATABLE = ("hidden", "slow")  # may be repeated; the values are joined with commas
METAVARS = {
    "data": "NAME",
    "hidden": "WIDTH",
    "slow": "ROLE:FACTOR",
    "partition": "HOW",
    "scheduler": "ADDRESS",
    "costs": "JSON",
}
DEFAULT_TEXTS = {  # defaults that are not plain values
    "optimizer": "sgd", "partition": "even", "dtype": "the data set's own", "compute": "deterministic:0.01",
    "pace": "none", "dataset": "digits, or what the strategy needs", "hidden": "128, or what the strategy needs",
}  # fmt: skip
MAX_SHOWN_LIMIT = 1e6  # larger limits are not shown in the help
FIGURE_SUFFIXES = (".png", ".pdf", ".svg", ".jpg")


@dataclass(frozen=True)
class GivenOptions:
    """The options given for a run.

    values: {name on the command line, with underscores: text}, without defaults. sets, options, faults: the texts given
    with `--set`, `--option` and `--fault`. model: `module:Class`, with the texts given with `--model-option`.
    """

    values: Mapping[str, str]
    sets: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    model: str | None = None
    model_options: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResultFiles:
    """The names of the result files of one run; None if a file was not requested."""

    trace: str | None = None
    perfetto: str | None = None
    figure: str | None = None
    log: str | None = None


RESULT_OPTIONS = ("trace", "perfetto", "figure", "log", "out", "csv", "parquet", "as_json")
FILE_OPTIONS = (
    click.option("--trace", metavar="FILE.npz", help="The trace of the run: all its events, as NumPy arrays."),
    click.option("--perfetto", metavar="FILE.json", help="The trace for https://ui.perfetto.dev."),
    click.option("--figure", metavar="FILE.png", help="A figure of the run."),
    click.option("--log", metavar="FILE", help="The run's log as text."),
)


# declaring ------------------------------------------------------------------------------------------------------------


class RunCommand(click.Command):
    """A command with the options of a run. The options are created at the first access, so that slow imports are deferred.

    `without`: names of options, with underscores, and titles of sections that the command does not have.
    """

    _run_options_added = False

    def __init__(self, *args: Any, without: Iterable[str] = (), **more: Any):
        self._without = frozenset(without)
        super().__init__(*args, **more)

    @property
    def params(self) -> list[click.Parameter]:
        if not self._run_options_added:
            self._run_options_added = True
            left_out = self._without
            self._params.extend(o for o in run_options() if not {o.name, o.section} & left_out)
        return self._params

    @params.setter
    def params(self, own: list[click.Parameter]) -> None:
        self._params, self._run_options_added = own, False

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options by sections, the command's own options first."""
        titles = ("Options", *(self._title(title) for title, _, _ in SECTIONS), "Results")
        rows: dict[str, list[tuple[str, str]]] = {title: [] for title in titles}
        for param in self.get_params(ctx):
            row = param.get_help_record(ctx)
            if row is not None:
                section = "Results" if param.name in RESULT_OPTIONS else "Options"
                rows[self._title(param.section) if isinstance(param, RunOption) else section].append(row)
        for title, found in rows.items():
            if not found:
                continue
            with formatter.section(title):
                formatter.write_dl(found)

    def _title(self, section: str) -> str:
        """Return the title of a section in the help of this command: without the engine, if the command decides about it."""
        decides = self._without and all(param.name != "engine" for param in self._params)
        return section.partition(", only with")[0] if decides else section


class RunOption(click.Option):
    def __init__(self, section: str, names: list[str], **more: Any):
        super().__init__(names, **more)
        self.section = section


@functools.cache
def run_options() -> tuple[RunOption, ...]:
    """Section by section."""
    from ..engines.cluster_spec import ClusterSpec
    from ..options import options_of
    from ..problem import Problem
    from ..roles.budget import Budget
    from ..strategies import Strategy

    parts: dict[str, Any] = {"strategy": Strategy, "problem": Problem, "budget": Budget, "cluster": ClusterSpec}
    declared_options: list[RunOption] = []
    for title, part, names in SECTIONS:
        known = options_of(parts[part])
        declared_options += [_option(title, name, known[declared]) for name, declared in names.items()]
        declared_options += [
            RunOption(section, names, **more) for section, names, more in EXTRA_OPTIONS.values() if section == title
        ]
    return tuple(declared_options)


def _option(section: str, name: str, option: Option) -> RunOption:
    if option.type is bool:
        return RunOption(section, [f"--{name}"], is_flag=True, help=_help(name, option))
    more = {"metavar": _metavar(option), "multiple": option.name in REPEATABLE, "help": _help(name, option)}
    return RunOption(section, [f"--{name}"], type=str, **more)


def _metavar(option: Option) -> str:
    if option.choices:
        return "|".join(str(choice) for choice in option.choices if choice)
    if option.names is not None:
        return "DISTRIBUTION" if option.unit else METAVARS.get(option.name, "NAME")
    by_unit = {"s": "SECONDS", "bytes/s": "BYTES/S"}
    return METAVARS.get(option.name) or ("N" if option.type is int else by_unit.get(option.unit, "X"))


def _help(name: str, option: Option) -> str:
    """Return the help text: `Time of every message from node to node (0 to 1000 s; default 0 s).`"""
    from ..options import limit_text

    unit, usual = f" {option.unit}" if option.unit else "", DEFAULT_TEXTS.get(name.replace("-", "_"))
    if usual is None and option.type in (int, float, str) and option.default is not None:
        usual = f"{option.default:g}{unit}" if isinstance(option.default, float) else str(option.default)
    low, high = option.low, option.high
    about = []
    if low is not None and high is not None and high < MAX_SHOWN_LIMIT:
        about.append(f"{limit_text(low)} to {limit_text(high)}{unit}")
    about += [f"default {usual}"] if usual else []
    about += ["repeatable"] if option.name in REPEATABLE else []
    names = f": {', '.join(option.names)}" if option.names is not None and ":" not in option.help else ""
    return option.help[:1].upper() + option.help[1:] + names + (f" ({'; '.join(about)})" if about else "") + "."


def file_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in reversed(FILE_OPTIONS):
        command = option(command)
    return command


# reading --------------------------------------------------------------------------------------------------------------


def given_options(options: Mapping[str, Any]) -> GivenOptions:
    """Select the options that were given from all options that click passes to a command."""
    values = {}
    for _, _, names in SECTIONS:
        for name in (name.replace("-", "_") for name in names):
            value = options.get(name)
            if value is True:
                values[name] = "true"
            elif isinstance(value, tuple) and value:
                values[name] = ",".join(value)
            elif isinstance(value, str):
                values[name] = value
    return GivenOptions(values, *(options.get(name, ()) for name in EXTRA_OPTIONS))


def writable_files(options: Mapping[str, Any]) -> ResultFiles:
    """Return the files that were given. Raises `BadInput`, before the run, if a file cannot be written."""
    files = ResultFiles(**{field.name: options.get(field.name) for field in fields(ResultFiles)})
    for option, name in vars(files).items():
        if name is not None:
            check_file(option, name)
    return files


def run_specs(names: tuple[str, ...], engine: str, given: GivenOptions) -> list[RunSpec]:
    """Return the specification of a run for each of these strategies. Problem, budget, cluster and faults are the same.

    If there are several strategies, each gets only those options of `--set` that it has, and servers only if it uses
    servers. Every specification is checked as a whole. Raises `BadInput` if an option or a combination is not allowed.
    """
    from ..engines.cluster_spec import ENGINES, ClusterSpec, default_workers
    from ..errors import BadInput, nearest
    from ..spec import RunSpec

    if engine not in ENGINES:
        raise nearest("engine", engine, ENGINES)
    for owner, names_of_engine in ENGINE_OPTIONS.items():
        for name in names_of_engine:
            if owner != engine and name.replace("-", "_") in given.values:
                allowed = ", ".join(f"--{n}" for n in ENGINE_OPTIONS[engine])
                wrong = f"--{name} belongs to --engine {owner} and this is --engine {engine}"
                raise BadInput(f"{wrong}, which takes {allowed}.")
    strategies = [_strategy(name, names, given) for name in names]
    spec = RunSpec(cluster=ClusterSpec(engine, workers=default_workers(engine, given.values.get("scheduler"))))
    for strategy in strategies:
        spec = spec.changed(strategy=strategy)
    if given.model is not None or given.model_options:
        spec = spec.changed(model=_model(given.model, given.model_options))
    for _, part, section in SECTIONS:
        for name, declared in section.items() if part != "strategy" else ():
            if (text := given.values.get(name.replace("-", "_"))) is not None:
                spec = spec.changed(**{declared: spec.read(declared, text)})
    spec = replace(spec.changed(options=_data_options(spec, given.options)), faults=_faults(given.faults))
    specs = [_for_strategy(spec, strategy, alone=len(names) == 1) for strategy in strategies]
    for each in specs:
        each.check()
    return specs


def _for_strategy(spec: RunSpec, strategy: Any, alone: bool) -> RunSpec:
    """Return the specification for one of the strategies. `alone`: whether it is the only strategy."""
    no_servers = not alone and not strategy.uses_servers
    return replace(spec, strategy=strategy, cluster=replace(spec.cluster, servers=None) if no_servers else spec.cluster)


def _strategy(name: str, names: Iterable[str], given: GivenOptions) -> Any:
    """Make the strategy of this name, with the given options of strategies and those options of `--set` that it has."""
    from ..errors import BadInput, lacks
    from ..options import options_of, parse_option, read_option
    from ..strategies import strategy_by_name

    cls, others = strategy_by_name(name), [strategy_by_name(other) for other in names]
    known, options = options_of(cls), {}
    for assignment in given.sets:
        option = assignment.partition("=")[0].strip().replace("-", "_")
        if option not in known and len(others) > 1:
            if not any(option in options_of(other) for other in others):
                raise lacks(
                    "None of these strategies", "setting", option, {k for other in others for k in options_of(other)}
                )
            continue
        option, value = parse_option(cls.__name__, known, assignment)
        options[option] = value
    for flag, option in SECTIONS[0][2].items():
        if (text := given.values.get(option)) is not None:
            if option in options:
                raise BadInput(
                    f"--set {option}={options[option]} and --{flag} {text} set one option twice; give one of them."
                )
            options[option] = read_option(cls.__name__, known[option], text)
    return cls(**options)


def _model(path: str | None, texts: tuple[str, ...]) -> Any:
    """Import `module:Class`, as `python -m` would, and make the model with these options, such as `("channels=16",)`.

    Raises `BadInput` if there is no such module or class, or if an option is not allowed.
    """
    from ..errors import BadInput, lacks, shown
    from ..models.numpy_model import NumpyModel
    from ..options import parse_option, plain_options_of

    if path is None:
        raise BadInput(f"--model-option {texts[0]}: there is no --model whose option this could be.")
    module, _, name = path.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), name]):
        raise BadInput(f"--model {path}: give a module and a class, as --model cnn:CNN for the class CNN in cnn.py.")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        names = vars(importlib.import_module(module))
    except Exception as error:
        missing = str(error.name) if isinstance(error, ModuleNotFoundError) else ""
        if missing and f"{module}.".startswith(f"{missing}."):
            why = f"there is no file {missing.replace('.', '/')}.py in this folder, and no such module is installed"
            raise BadInput(f"--model {path}: {why}.") from None
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = "" if "importlib" in last.filename else f" ({os.path.basename(last.filename)}, line {last.lineno})"
        raise BadInput(f"--model {path}: importing {module} raised {type(error).__name__}: {error}{place}.") from error
    found = names.get(name)
    if isinstance(found, NumpyModel) and not texts:
        return found
    if not isinstance(found, type) or not issubclass(found, NumpyModel):
        models = [n for n, value in names.items() if isinstance(value, type) and issubclass(value, NumpyModel)]
        if name not in names and models:
            raise lacks(module, "model", name, models)
        what = f"{name} is {shown(found, 60)}" if name in names else f"{module} has no {name}"
        raise BadInput(f"--model {path}: {what}; a subclass of lk.NumpyModel is needed.")
    return found(**dict(parse_option(name, plain_options_of(found), text) for text in texts))


def _data_options(spec: RunSpec, texts: tuple[str, ...]) -> dict[str, Any]:
    """Parse options of the data set, such as `("rows=100000",)`, by the declarations of the data set."""
    from ..data import dataset_options
    from ..errors import BadInput
    from ..options import parse_option

    known = dataset_options(spec.problem.name)
    if texts and not known:
        raise BadInput(f"--option {texts[0]}: the data set {spec.problem.name} has no options.")
    return dict(parse_option(spec.problem.name, known, text) for text in texts)


def _faults(texts: tuple[str, ...]) -> tuple[Any, ...]:
    """Parse the fault schedule. Raises `BadInput` for a kill without a time, because it is probably a mistake."""
    from ..engines.commands import Kill
    from ..engines.faults import parse_fault
    from ..errors import BadInput

    faults = tuple(parse_fault(text) for text in texts)
    for text, fault in zip(texts, faults):
        if isinstance(fault, Kill) and "@" not in text:
            raise BadInput(
                f"--fault {text}: give the time in seconds from the start, as {text}@2; {text}@0 is at the start."
            )
    return faults


def check_file(option: str, name: str) -> None:
    """Raise `BadInput` if a file cannot be written."""
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
    if option == "figure" and path.suffix.lower() not in FIGURE_SUFFIXES:
        raise BadInput(f"--figure {name}: the name of a figure ends in {', '.join(FIGURE_SUFFIXES)}.")
