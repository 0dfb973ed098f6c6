"""Share texts: a lab as a short text, with settings by their names, which can be read and edited by hand.

    strategy=ssp&s=5&workers=8&pace=0.2&seconds=30&slow=worker-2:5

Names and formats of settings are those of their declarations (`RunSpec.write`). Only differences from the default lab are
written. User-defined objects (arrays, a strategy class) cannot be written, and raise `BadInput`.
"""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from ..errors import BadInput, shown
from ..options import write_option
from ..spec import strategy_name
from ..strategies import STRATEGIES
from .settings import Settings


def share_text(settings: Settings, **more: str) -> str:
    """Return the text of a lab's settings.

    `more`: further entries (the scenario, the panels, the commands executed on the run).
    """
    name, data, model = strategy_name(settings.strategy), settings.problem.name, settings.problem.model
    own = {
        "strategy": settings.strategy.name if name not in STRATEGIES else None,
        "data set": data if not isinstance(settings.problem.data, str) else None,
        "model": shown(model) if model is not None else None,
    }
    for kind, user_defined in own.items():
        if user_defined is not None:
            raise BadInput(
                f"{user_defined} is a user-defined {kind}, and a share text contains no code and no data: share the notebook, "
                f"or choose a {kind} of labkit."
            )
    plain = Settings().changed(strategy=name)
    if data != plain.problem.name:
        plain = plain.changed(data=data)
    parts = {"strategy": name} | ({"data": data} if data != Settings().problem.name else {})
    if settings.cluster.compute != plain.cluster.compute:
        parts["compute"] = settings.spec.write("compute")
    known = settings.options()
    for setting in (name for name in known if name not in ("data", "pace", "distribution")):
        if settings.value(setting) != plain.value(setting):
            written = (
                write_option(known[setting], settings.speed) if setting == "speed" else settings.spec.write(setting)
            )
            parts[setting] = written
    return urlencode(parts | more, safe=":,+-/@#* ").replace(" ", "+")


def read_share_text(text: str, also: tuple[str, ...] = ()) -> tuple[Settings, dict[str, str]]:
    """Return (the settings, the other entries). `also`: the allowed names of other entries. Raises `BadInput` if the text
    is invalid.
    """
    try:
        pairs = dict(
            parse_qsl(str(text).strip().replace("+", "%2B"), keep_blank_values=True, strict_parsing=bool(text))
        )
    except ValueError:
        raise BadInput(f"{text!r} is not the share text of a lab; an example is strategy=ssp&s=5&workers=8.") from None
    more = {name: pairs.pop(name) for name in also if name in pairs}
    first = {name: pairs.pop(name) for name in ("strategy", "data") if name in pairs}
    settings = Settings().changed(**first)
    for name, written in pairs.items():
        try:
            settings = settings.changed(**{name: settings.read(name, written)})
        except BadInput as error:
            raise BadInput(f"{name}={shown(written, 60)}: {error}") from None
    return settings, more
