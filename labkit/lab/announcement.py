"""Announces settings that have changed because another setting was changed, in sentences for the page."""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import BadInput
from ..options import options_of
from .controls import label_of
from .settings import FIELDS, Settings

# {setting: (the setting on which it depends, why)}
REASONS = {
    "hidden": ("strategy", "{strategy} needs at least {layers} hidden layers"),
    "data": ("strategy", "{strategy} needs these data"),
    "servers": ("strategy", "{strategy} has no servers"),
    "replicas": ("strategy", "{strategy} has no servers"),
    "distribution": ("engine", "In virtual time every gradient takes time"),
    "accuracy": ("data", "{data} has no classes"),
}


def announcement(before: Settings, after: Settings, given: Iterable[str]) -> str:
    """Return which settings have changed because the settings `given` were changed, or "".

    Defaults that differ between two strategies are not announced, because the user has not chosen them.
    """
    return " ".join([*_replaced(before, after, set(given)), *_options(before, after, set(given))])


def _replaced(before: Settings, after: Settings, given: set[str]) -> list[str]:
    """Sentences on the parts of a run that the strategy, the engine or the data needs."""
    sentences = []
    words = {"strategy": after.strategy.name, "data": after.problem.name, "layers": len(after.problem.hidden)}
    given = given | {field for name in given for _, field in FIELDS.get(name, ())}
    for name in REASONS.keys() - given:
        old, new = _text(before, name), _text(after, name)
        if old == new:
            continue
        cause, why = REASONS[name]
        if name in _held(after):
            reason = why.format(**words)
            sentences.append(
                f"{reason}: {label_of(name)} changed from {old} to {new}, until another {cause} is chosen."
            )
        else:
            sentences.append(f"{label_of(name).capitalize()} changed back from {old} to {new}.")
    return sorted(sentences)


def _held(settings: Settings) -> set[str]:
    """The settings that are replaced now."""
    fields = {field for _, field in settings.replaced}
    return {"distribution" if field == "compute" else field for field in fields}


def _options(before: Settings, after: Settings, given: set[str]) -> list[str]:
    """Sentences on options of the strategy that another strategy has not taken over."""
    known = options_of(before.strategy)
    return [
        f"{after.strategy.name}: {label_of(name)} changed from {_text(before, name)} to {_text(after, name)}."
        for name in known.keys() & options_of(after.strategy).keys() - given
        if before.value(name) != known[name].default and _text(before, name) != _text(after, name)
    ]


def _text(settings: Settings, name: str) -> str:
    try:
        return settings.spec.write(name) or "none"
    except BadInput:  # a user-defined object
        return str(settings.value(name))
