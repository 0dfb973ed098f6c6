"""Places in nested plain values, such as a JSON document, and copies with a change at a place."""

import copy


def places(node, path=(), most=None):
    """The path of every value; of a list, the first `most`."""
    items = (
        node.items() if isinstance(node, dict) else enumerate(node[:most]) if isinstance(node, (list, tuple)) else ()
    )
    for key, child in items:
        yield (*path, key)
        yield from places(child, (*path, key), most)


def changed(contents, path, change):
    """A copy in which `change(container, key)` was done to the value at `path`."""
    made = copy.deepcopy(contents)
    inner = made
    for key in path[:-1]:
        inner = inner[key]
    change(inner, path[-1])
    return made
