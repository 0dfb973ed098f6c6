"""Tasks of a role as scripts, without an engine: the effects that an engine sees, and the order in which tasks continue."""

import pytest

import labkit as lk
from labkit.roles.effects import COMPUTE, OPEN, RECV, SELECT, TaskWork
from labkit.roles.tasks import RoleTasks
from tests.roles.test_scripts import Sheet, message_from


def opened(coroutine):
    """The coroutine of a role that has opened its first group, and its next effect."""
    effect = coroutine.send(None)
    assert effect[0] is OPEN
    role = RoleTasks(coroutine, effect)
    return role, role.send(None)


def over(role, what, result=None, error=None):
    """Finish a work or wait; the next effect."""
    what.result = result
    if isinstance(what, TaskWork):
        what.finished, what.error = True, error
    return role.send(what)


async def computes(ctx, log, name, pieces=1, then=None):
    try:
        for i in range(pieces):
            log.append((name, await ctx.compute(len, name, i)))
        if then is not None:
            then.put(name)
    finally:
        log.append((name, "end"))


async def receives(ctx, log, name, *kinds, **options):
    try:
        log.append((name, await ctx.recv(*kinds, **options)))
    finally:
        log.append((name, "end"))


def test_work_is_done_in_the_order_in_which_tasks_begin_to_wait_for_it():
    ctx, log = Sheet(), []

    async def role():
        async with ctx.tasks() as tasks:
            tasks.start(computes(ctx, log, "a", 2))
            tasks.start(computes(ctx, log, "b", 2))

    driven, effect = opened(role())
    done = []
    for number in (1, 2, 3):
        mark, work, waits = effect
        assert (mark, waits, work.begun) == (SELECT, [], False)
        done.append(work.args)
        effect = over(driven, work, number)
    done.append(effect[1].args)
    with pytest.raises(StopIteration):
        over(driven, effect[1], 4)
    assert done == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]
    assert log == [("a", 1), ("b", 2), ("a", 3), ("a", "end"), ("b", 4), ("b", "end")]


def test_work_goes_on_while_another_task_receives():
    ctx, log = Sheet(), []

    async def role():
        async with ctx.tasks() as tasks:
            tasks.start(computes(ctx, log, "work"))
            tasks.start(receives(ctx, log, "first", lk.Ack))
            tasks.start(receives(ctx, log, "second", lk.Ack, sender="worker-1"))
        log.append(await ctx.recv(lk.Pull))

    driven, (_, work, waits) = opened(role())
    work.begun = True
    assert [(wait.kinds, wait.sender) for wait in waits] == [((lk.Ack,), None), ((lk.Ack,), "worker-1")]
    ack = message_from(lk.Ack, "worker-1", 7)
    assert [wait.accepts(ack) for wait in waits] == [True, True]
    _, same, waits = over(driven, waits[0], ack)
    assert same is work
    assert len(waits) == 1
    _, work, waits = over(driven, work, 5)
    assert work is None
    assert over(driven, waits[0], ack) == (
        RECV,
        (lk.Pull,),
        None,
        None,
    )  # without tasks the effects are those of the role
    assert log == [("first", ack), ("first", "end"), ("work", 5), ("work", "end"), ("second", ack), ("second", "end")]


@pytest.mark.parametrize("caught", [False, True])
def test_an_error_ends_the_other_tasks_and_is_raised_in_the_block(caught):
    ctx, log = Sheet(), []

    async def role():
        try:
            async with ctx.tasks() as tasks:
                tasks.start(receives(ctx, log, "first", lk.Ack))
                tasks.start(receives(ctx, log, "second", lk.Ack))
                tasks.start(computes(ctx, log, "work"))
                if caught:
                    with pytest.raises(ValueError, match="broken"):
                        await ctx.sleep(5)  # the block itself is interrupted, too
        finally:
            log.append("closed")

    driven, (_, work, _) = opened(role())
    work.begun = True
    with pytest.raises(ValueError, match="broken"):
        over(driven, work, error=ValueError("broken"))
    assert log == [("work", "end"), ("second", "end"), ("first", "end"), "closed"]


def test_closing_a_role_ends_the_innermost_tasks_first():
    ctx, log = Sheet(), []

    async def inner():
        async with ctx.tasks() as tasks:
            tasks.start(receives(ctx, log, "innermost", lk.Ack))
            await receives(ctx, log, "inner", lk.Ack)

    async def role():
        async with ctx.tasks() as tasks:
            tasks.start(receives(ctx, log, "older", lk.Ack))
            tasks.start(inner())
            await receives(ctx, log, "role", lk.Ack)

    driven, (_, work, waits) = opened(role())
    assert (work, len(waits)) == (None, 4)
    driven.close()
    assert [name for name, _ in log] == ["role", "inner", "innermost", "older"]  # the newest first, each with its own


def test_work_of_an_ended_task_is_cancelled_before_the_role_goes_on():
    ctx, log = Sheet(), []

    async def breaks():
        async with ctx.tasks() as tasks:
            tasks.start(computes(ctx, log, "work"))
            await ctx.sleep(1)
            raise ValueError("broken")

    async def role():
        with pytest.raises(ValueError, match="broken"):
            await breaks()
        await ctx.compute(len, "after")

    driven, (_, work, waits) = opened(role())
    work.begun = True
    assert over(driven, waits[0]) == (SELECT, None, [])  # nothing is in progress from here on
    assert driven.send(None) == (COMPUTE, len, ("after",), 1.0, None)


def test_a_queue_hands_over_in_order_and_a_lonely_wait_for_it_is_an_error():
    ctx, log = Sheet(), []

    async def takes(queue):
        while True:
            log.append(await queue.get())

    async def role():
        async with ctx.tasks() as tasks:
            queue = tasks.queue()
            queue.put(1)
            tasks.start(takes(queue), name="the reader")
            await ctx.sleep(1)
            queue.put(2)
            queue.put(3)

    driven, (_, _, waits) = opened(role())
    assert log == [1]
    with pytest.raises(lk.RoleError, match="the role waits for its tasks; the reader waits for a queue"):
        over(driven, waits[0])
    assert log == [1, 2, 3]


def test_a_wrong_start_is_an_error():
    ctx = Sheet()

    async def no_coroutine():
        async with ctx.tasks() as tasks:
            tasks.start(len)

    async def not_open():
        async with ctx.tasks():
            ctx.tasks().start(ctx.recv(lk.Ack))

    async def too_late():
        async with ctx.tasks() as tasks:
            pass
        tasks.start(computes(ctx, [], "late"))

    with pytest.raises(lk.RoleError, match="give a coroutine"):
        opened(no_coroutine())
    with pytest.raises(lk.RoleError, match="inside the block"):
        opened(not_open())
    with pytest.raises(lk.RoleError, match="inside the block"):
        opened(too_late())


@pytest.mark.parametrize(("kinds", "tag"), [((lk.Chunk,), "x"), ((lk.Ack,), 1), ((lk.Chunk,), True)])
def test_a_tag_is_an_int_of_a_kind_that_has_tags(kinds, tag):
    with pytest.raises(lk.RoleError, match="tag"):
        Sheet().recv(*kinds, tag=tag).send(None)
