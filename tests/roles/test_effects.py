"""The effects that a role can await: what each yields, and that no other module yields to an engine."""

import ast
from pathlib import Path

import pytest

import labkit
import labkit as lk
from labkit.roles import effects
from labkit.roles.messages import Pull, Push

AWAITED_BY_ASYNCIO = {"nannies"}  # processes, not roles
MODULES = sorted(Path(labkit.__file__).parent.rglob("*.py"))


def yielded(awaitable):
    """(the effect that an awaitable yields, what awaiting it returns when "answer" is sent in)."""

    async def role():
        return await awaitable

    coroutine = role()
    effect = coroutine.send(None)
    with pytest.raises(StopIteration) as ended:
        coroutine.send("answer")
    return effect, ended.value.value


def test_effects_yield_their_request_and_return_the_answer():
    for awaitable, effect, result in [
        (lambda: effects.compute(None, max, 1, 2), (effects.COMPUTE, max, (1, 2), 1.0, None), "answer"),
        (lambda: effects.compute(None, max, cost=0.5, unless=Push), (effects.COMPUTE, max, (), 0.5, Push), "answer"),
        (lambda: effects.recv(None, Push), (effects.RECV, (Push,), None, None), "answer"),
        (lambda: effects.recv(None, Push, Pull, timeout=0, sender="a"), (effects.RECV, (Push, Pull), 0, "a"), "answer"),
        (lambda: anext(effects.inbox(None, Pull)), (effects.RECV, (Pull,), None, None), "answer"),
        (lambda: effects.sleep(None, 2.5), (effects.SLEEP, 2.5), None),
        (lambda: effects.call("pull", (1,), {"a": 2}), (effects.CALL, "pull", (1,), {"a": 2}), "answer"),
    ]:
        assert yielded(awaitable()) == (effect, result), (awaitable, effect, result)


@pytest.mark.parametrize("kinds", [(), (None,), (Push, "Pull"), (3,)], ids=str)
def test_kinds_of_messages_are_classes(kinds):
    with pytest.raises(lk.RoleError, match="name the kinds of message to wait for"):
        effects.inbox(None, *kinds)
    with pytest.raises(lk.RoleError, match="name the kinds of message to wait for"):
        yielded(effects.recv(None, *kinds))


def yields_to_an_engine(module):
    """Whether a module makes generators awaitable with `types.coroutine`."""
    nodes = ast.walk(ast.parse(module.read_text()))
    return any(isinstance(node, ast.Attribute) and ast.unparse(node) == "types.coroutine" for node in nodes)


@pytest.mark.slow
def test_effects_are_yielded_in_one_module():
    assert [m.stem for m in MODULES if yields_to_an_engine(m) and m.stem not in AWAITED_BY_ASYNCIO] == ["effects"]
