"""Tasks of one role: structured concurrency, as a nursery of trio or a `TaskGroup` of asyncio.

    async with ctx.tasks() as tasks:
        ready = tasks.queue()
        tasks.start(communicate(ctx, ready))
        tasks.start(backward(ctx, model, ready))
    # both tasks have ended

No task outlives its block. If a task or the block itself raises an error, the other tasks are ended, and the block raises this
error. When the role ends (a kill, the end of the run, a group restart), its tasks are ended, those of the innermost block first.
A task is ended by closing its coroutine, so that its `finally` blocks run, which must not await anything.

A role stays one coroutine for its engine. `RoleTasks` takes the place of the role's coroutine when the role opens its first
group. It drives the coroutines of the role itself and of its tasks, one at a time, and combines what they await into one effect
(`effects.SELECT`). What is one per task is here: what it waits for, and in which order. What is one per role stays in the
engine: inbox, counters, clock. While no group is open, the effects of the role are passed on unchanged.

- **Computation is serial**, as a device computes one thing at a time: work of the tasks is done in the order in which they
  began to await it. The other tasks receive messages meanwhile.
- **Messages** go to the task that waits for them; if several do, to the one that has waited longest. This includes `Joined` and
  `Left`, which are delivered if one of the tasks waits for them.
- **Hand-over** between tasks of one role is a queue, which is never polled. If all tasks wait for each other, the role gets an
  error that names them.
"""

from __future__ import annotations

import contextlib
import inspect
from collections import deque
from collections.abc import Coroutine
from typing import Any

from ..errors import RoleError, shown
from . import effects
from .effects import COMPUTE, GET, JOIN, OPEN, RECV, SELECT, SLEEP, Effect, TaskWait, TaskWork


class Task:
    """One task: a coroutine. `group`: the group that has started it; None for the role itself. `pending`: what it awaits, a
    `TaskWork`, a `TaskWait`, a queue or a group.
    """

    __slots__ = ("coroutine", "group", "name", "pending")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], name: str, group: TaskGroup | None):
        self.coroutine, self.name, self.group = coroutine, name, group
        self.pending: Any = None


class TaskGroup:
    """A group of tasks of one role, which end before its block ends: `async with ctx.tasks() as tasks`.

    The first error of a task ends the other tasks of the group, and is raised in the block.

    See Also
    --------
    Context.tasks : Returns a group.

    Examples
    --------
    A worker that computes for three seconds, while another task of it prints what arrives.

    >>> async def report(ctx, queue):
    ...     while (number := await queue.get()) is not None:
    ...         await ctx.sleep(0.5)
    ...         print(f"{ctx.now:.1f} s: {number} is ready")
    >>> class Example(lk.RingAllReduce):
    ...     async def worker(self, ctx, model, replica):
    ...         async with ctx.tasks() as tasks:
    ...             queue = tasks.queue()
    ...             tasks.start(report(ctx, queue))
    ...             for number in range(3):
    ...                 await ctx.compute(print, "computed", cost=100)
    ...                 queue.put(number)
    ...             queue.put(None)
    >>> run = lk.train("moons", Example(), lk.SimulatedCluster(workers=1), lk.Budget(seconds=9)).wait()
    computed
    1.5 s: 0 is ready
    computed
    2.5 s: 1 is ready
    computed
    3.5 s: 2 is ready
    """

    def __init__(self) -> None:
        self._role: RoleTasks | None = None  # while the block is open
        self._host: Task | None = None  # the task whose block it is
        self._tasks: list[Task] = []  # those that have not ended
        self._error: BaseException | None = None  # the first one of its tasks

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str = "") -> None:
        """Start a task. It begins to run when the task that starts it awaits something.

        Parameters
        ----------
        coroutine : coroutine
            What the task does, as `communicate(ctx, queue)`.
        name : str, default: ''
            The name of the task in error messages. Empty: the name of the coroutine's function.

        Raises
        ------
        RoleError
            If the block of the group is not open, or if `coroutine` is not a coroutine.
        """
        if not (inspect.isawaitable(coroutine) and hasattr(coroutine, "close")):
            raise RoleError(f"tasks.start({shown(coroutine)}): give a coroutine, as tasks.start(communicate(ctx)).")
        if self._role is None:
            coroutine.close()
            raise RoleError("tasks.start(...): a task is started inside the block `async with ctx.tasks() as tasks`.")
        task = Task(coroutine, name or getattr(coroutine, "__name__", "task"), self)
        self._tasks.append(task)
        self._role.resume(task)

    def queue(self) -> TaskQueue:
        """Return a queue, with which tasks of this role hand over to each other.

        Returns
        -------
        TaskQueue
            An empty queue.
        """
        return TaskQueue()

    async def __aenter__(self) -> TaskGroup:
        if self._role is not None:
            raise RoleError("This task group is open: write `async with ctx.tasks() as tasks` for each block.")
        await effects.open_group(self)
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        assert self._role is not None
        try:
            if error is None:
                await effects.join(self)
        finally:
            self._end_tasks()
            self._role.closed(self)
            self._role = None
        if error is None and self._error is not None:  # its block has caught it
            raise self._error

    def _end_tasks(self) -> None:
        """End all tasks, the newest first."""
        assert self._role is not None
        while self._tasks:
            self._role.end(self._tasks.pop())


class TaskQueue:
    """A first-in first-out queue between tasks of one role. `put` never waits.

    See Also
    --------
    TaskGroup.queue : Returns a queue.

    Examples
    --------
    >>> async def announce(queue):
    ...     print("second:", await queue.get())
    >>> class Example(lk.RingAllReduce):
    ...     async def worker(self, ctx, model, replica):
    ...         async with ctx.tasks() as tasks:
    ...             queue = tasks.queue()
    ...             tasks.start(announce(queue))
    ...             print("first")
    ...             queue.put("the other task goes on")
    >>> run = lk.train("moons", Example(), lk.SimulatedCluster(workers=1), lk.Budget(seconds=1)).wait()
    first
    second: the other task goes on
    """

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: deque[tuple[RoleTasks, Task]] = deque()  # tasks that wait for an item

    def put(self, item: object) -> None:
        """Append an item. The task that waits for it continues when the present task awaits something.

        Parameters
        ----------
        item : object
            The item.
        """
        if self._waiting:
            role, task = self._waiting.popleft()
            role.resume(task, item)
        else:
            self._items.append(item)

    async def get(self) -> Any:
        """Remove the first item and return it; wait until there is one.

        Returns
        -------
        object
            The item.
        """
        return await effects.get(self)


class RoleTasks:
    """The coroutine of a role that has tasks. Engines drive it by `send`, `throw` and `close`, like any coroutine.

    `effect`: the effect with which the role opened its first group.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], effect: Effect):
        self._main = self._current = Task(coroutine, "the role", None)
        self._ready: deque[tuple[Task, Any, BaseException | None]] = deque()
        self._works: list[TaskWork] = []  # in the order in which the tasks began to wait; the first one is in progress
        self._waits: list[TaskWait] = []  # in the order in which the tasks began to wait
        self._groups: list[TaskGroup] = []  # open groups
        self._ended_work = False  # whether the engine may still have to cancel work in progress of an ended task
        self._next: Effect | None = None  # an effect of the role that follows when that is done
        self._passed = False  # whether the present effect is one of the role, passed on unchanged
        self._perform(self._main, effect)

    # the coroutine ----------------------------------------------------------------------------------------------------

    def send(self, value: Any) -> Effect:
        """Continue with the result of the latest effect. Returns the next effect."""
        if self._next is not None:
            effect, self._next = self._next, None
            return effect
        if self._passed:
            self._passed = False
            self.resume(self._main, value)
        elif value is not None:
            self._finished(value)
        elif not self._ready:  # interrupted: all waits end without a message
            for wait in self._waits[:]:
                self._finished(wait)
        return self._run()

    def throw(self, error: BaseException) -> Effect:
        """Raise `error` in the task whose effect has failed. Returns the next effect."""
        self._passed = False
        self._interrupt(self._current, error)
        return self._run()

    def close(self) -> None:
        """End the role and its tasks, those of the innermost group first."""
        self._main.coroutine.close()

    # tasks ------------------------------------------------------------------------------------------------------------

    def resume(self, task: Task, value: Any = None) -> None:
        """Let `task` continue with `value`, the result of what it awaits, after the tasks that are ready."""
        task.pending = None
        self._ready.append((task, value, None))

    def end(self, task: Task) -> None:
        """End `task`, which has been removed from its group. Its errors while it ends are not reported, because another error
        ends it.
        """
        self._forget(task)
        with contextlib.suppress(Exception, SystemExit):
            task.coroutine.close()

    def closed(self, group: TaskGroup) -> None:
        """Process the end of the block of `group`."""
        self._groups.remove(group)

    def _run(self) -> Effect:
        """Continue all tasks that are ready. Returns the effect that the engine has to perform."""
        while True:
            while self._ready:
                task, value, error = self._ready.popleft()
                self._current = task
                try:
                    effect = task.coroutine.send(value) if error is None else task.coroutine.throw(error)
                except StopIteration:
                    if task is self._main:
                        raise
                    self._returned(task)
                except BaseException as failure:
                    if task is self._main:
                        raise
                    self._failed(task, failure)
                else:
                    if not self._perform(task, effect):
                        return self._pass_on(effect)
            if self._works or self._waits:
                self._ended_work = False  # the engine cancels work that is not named
                return SELECT, self._works[0] if self._works else None, self._waits
            self._interrupt(self._main, self._deadlock())

    def _pass_on(self, effect: Effect) -> Effect:
        """Return an effect that the engine performs for the present task alone. If work in progress has to be cancelled, this
        is the next effect.
        """
        self._passed = True
        if not self._ended_work:
            return effect
        self._ended_work, self._next = False, effect
        return SELECT, None, []

    def _perform(self, task: Task, effect: Any) -> bool:
        """Let `task` wait for the result of `effect`. Returns whether the task is one of several, and the effect is known."""
        mark = effect[0] if effect.__class__ is tuple and effect else None
        if mark is OPEN:
            group: TaskGroup = effect[1]
            group._role, group._host = self, task
            self._groups.append(group)
            self._ready.appendleft((task, None, None))
        elif not self._groups:
            return False
        elif mark is COMPUTE:
            task.pending = TaskWork(task, *effect[1:])
            self._works.append(task.pending)
        elif mark is RECV:
            self._wait(task, TaskWait(task, *effect[1:]))
        elif mark is SLEEP:
            self._wait(task, TaskWait(task, (), effect[1]))
        elif mark is SELECT:
            self._wait(task, effect[2][0])
        elif mark is GET:
            queue: TaskQueue = effect[1]
            if queue._items:
                self.resume(task, queue._items.popleft())
            else:
                task.pending = queue
                queue._waiting.append((self, task))
        elif mark is JOIN:
            if effect[1]._tasks:
                task.pending = effect[1]
            else:
                self.resume(task)
        else:
            return False
        return True

    def _wait(self, task: Task, wait: TaskWait) -> None:
        wait.task = task
        task.pending = wait
        self._waits.append(wait)

    def _finished(self, what: TaskWork | TaskWait) -> None:
        """Resume the task whose work or wait is over."""
        task = what.task
        self._forget(task)
        self._ready.append((task, what.result, what.error))

    def _forget(self, task: Task) -> None:
        """Remove `task` from everything that it waits for."""
        pending, task.pending = task.pending, None
        if pending.__class__ is TaskWait:
            self._waits.remove(pending)
        elif pending.__class__ is TaskWork:
            self._works.remove(pending)
            self._ended_work |= pending.begun and not pending.finished
        elif pending.__class__ is TaskQueue:
            pending._waiting.remove((self, task))
        else:
            self._ready = deque(entry for entry in self._ready if entry[0] is not task)

    def _interrupt(self, task: Task, error: BaseException) -> None:
        """Raise `error` in `task`, in place of the result of what it awaits."""
        self._forget(task)
        self._ready.append((task, None, error))

    def _returned(self, task: Task) -> None:
        group = task.group
        assert group is not None
        assert group._host is not None
        group._tasks.remove(task)
        if not group._tasks and group._host.pending is group:
            self.resume(group._host)

    def _failed(self, task: Task, error: BaseException) -> None:
        """End the other tasks of the group, and raise the error in its block."""
        group = task.group
        assert group is not None
        assert group._host is not None
        group._tasks.remove(task)
        group._error = error
        group._end_tasks()
        self._interrupt(group._host, error)

    def _deadlock(self) -> RoleError:
        """Return the error for tasks that all wait for each other."""
        tasks = [self._main, *(task for group in self._groups for task in group._tasks)]
        waits = "; ".join(
            f"{task.name} waits for {'a queue' if task.pending.__class__ is TaskQueue else 'its tasks'}"
            for task in tasks
        )
        return RoleError(f"the tasks of this role wait for each other: {waits}. Is a queue.put(...) missing?")
