"""The public names of labkit: those of `lk`, and those of its modules, as `lk.codecs`."""

import inspect

import labkit as lk


def public_objects():
    """{path below `lk`: object}, as "SGD", "codecs.TopK" or "lessons.pictures.bubble". Modules are not among the objects."""
    found, modules = {}, [("", lk)]
    for prefix, module in modules:  # modules that it contains are added to the end
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.ismodule(value):
                modules.append((f"{prefix}{name}.", value))
            else:
                found[prefix + name] = value
    return found
