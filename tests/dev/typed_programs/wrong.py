"""Mistakes of a user. The comment of a line is the error of mypy and that of pyright."""

from dataclasses import dataclass

import labkit as lk

print(lk.Nope)  # attr-defined, reportAttributeAccessIssue
lk.AsyncPS(learning_rate="x")  # arg-type, reportArgumentType
lk.AsyncPS(learning_rat=0.1)  # call-arg, reportCallIssue
lk.AsyncPS(0.1)  # call-arg, reportCallIssue
lk.AsyncPS(optimizer=lk.schedules.Constant())  # arg-type, reportArgumentType
lk.AsyncPS(optimizer=lk.SGD)  # arg-type, reportArgumentType
lk.AsyncPS(schedule=lk.SGD())  # arg-type, reportArgumentType
lk.AsyncPS(codec=0.01)  # arg-type, reportArgumentType
lk.AsyncPS().learning_rate = 0.2  # misc, reportAttributeAccessIssue
lk.schedules.StepDecay()  # call-arg, reportCallIssue
lk.Momentum("0.9")  # arg-type, reportArgumentType
lk.Problem("digits", hidden="64")  # arg-type, reportArgumentType
lk.Problem("digits", hiden=(8,))  # call-arg, reportCallIssue
lk.Problem(["digits"])  # arg-type, reportArgumentType
lk.Budget(updates="100")  # arg-type, reportArgumentType
lk.SimulatedCluster(workers="4")  # arg-type, reportArgumentType
lk.SimulatedCluster(compute=[0.1])  # arg-type, reportArgumentType
lk.SimulatedCluster(slow=["worker-1"])  # arg-type, reportArgumentType
lk.SimulatedCluster(pace=0.1)  # call-arg, reportCallIssue
lk.SimulatedCluster().compute = lk.distributions.Exponential(0.1)  # misc, reportAttributeAccessIssue
lk.DaskCluster(wrkers=3)  # call-arg, reportCallIssue
lk.DaskCluster(workers=2, pace=[0.1])  # arg-type, reportArgumentType
lk.Kill(1)  # arg-type, reportArgumentType
lk.Freeze("worker-1", during=2)  # arg-type, reportArgumentType

cluster = lk.SimulatedCluster()
lk.train("digits", "async-ps", cluster)  # arg-type, reportArgumentType
lk.train("digits", lk.AsyncPS(), 4)  # arg-type, reportArgumentType
lk.train("digits", lk.AsyncPS(), cluster, 100)  # arg-type, reportArgumentType
run = lk.train("digits", lk.AsyncPS(), cluster, faults=[lk.SGD()])  # list-item, reportArgumentType
run.wait("60")  # arg-type, reportArgumentType
run.kil("worker-1")  # attr-defined, reportAttributeAccessIssue
run.kill(1)  # arg-type, reportArgumentType
run.plot.stalenes()  # attr-defined, reportAttributeAccessIssue
run.plot.staleness(reference=4)  # arg-type, reportArgumentType
print(run.summary().accuracy)  # attr-defined, reportAttributeAccessIssue
lk.advise("digits", 4)  # arg-type, reportArgumentType
lk.Lab("digits", lk.AsyncPS, cluster)  # arg-type, reportArgumentType
lk.lessons.pictures.straggler(run, 4)  # arg-type, reportArgumentType


@dataclass(frozen=True)
class Mine(lk.Strategy):
    """A strategy of the user."""

    K: int = lk.option("a")  # assignment, reportAssignmentType
    L: int = lk.option(3, lo=1)  # call-overload, reportCallIssue

    async def worker(self, ctx: lk.Context) -> None:
        ctx.compute(len, [])  # unused-coroutine, reportUnusedCoroutine
        await ctx.sleep("1")  # arg-type, reportArgumentType
        await ctx.send("server-0", lk.Pull())  # misc, reportGeneralTypeIssues


Mine("3")  # arg-type, reportArgumentType
