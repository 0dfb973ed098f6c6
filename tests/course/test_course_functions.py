"""Functions of `labkit.course` for test cells: leads and waits of trials, memory and duration of schedules, closeness."""

import collections
import enum
import warnings
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import labkit as lk
from labkit import course
from tests.course.unusual_values import Number, Op
from tests.models.own_models import CNN

SLOW = {"worker-0": 4, "worker-1": 2}


class TestTrial:
    @pytest.mark.parametrize("s", [0, 2])
    def test_the_lead_over_the_slowest_worker_is_the_bound(self, s):
        trial = course.trial(lk.SSP(s=s), workers=4, updates=40, slow=SLOW).check()
        assert trial.largest_lead() == s == max(trial.leads)

    def test_the_lead_over_the_second_slowest_worker(self):
        """Without a bound, workers start their iteration number k at 0.1, 0.2 or 0.4 k seconds."""
        # ends at 1.6 s: 16 + 8 + 4 gradients
        trial = course.trial(lk.AsyncPS(), workers=3, updates=28, slow=SLOW).check()
        assert trial.largest_lead() == 15 - 3  # the last iteration of worker 2 begins at 1.5 s
        assert trial.largest_lead(behind=1) == 15 - 7
        assert trial.largest_lead(behind=2) <= 0

    def test_a_worker_that_may_begin_does_not_wait(self):
        trial = course.trial(lk.SSP(s=2), workers=4, updates=40, slow=SLOW).check()
        assert trial.longest_wait(2) == pytest.approx(0, abs=1e-9)
        assert trial.longest_wait(5) == pytest.approx(0.3, abs=0.11)  # it could begin much earlier with s = 5

    def test_a_synchronous_worker_waits_for_the_slowest(self):
        """Steps take 0.4 s, and with any bound above 0 a worker could begin after 0.1 s."""
        trial = course.trial(lk.SyncPS(), workers=2, updates=5, slow={"worker-0": 4}).check()
        assert trial.longest_wait(1) == pytest.approx(0.3)
        assert trial.longest_wait(0) == pytest.approx(0, abs=1e-9)


@dataclass(frozen=True)
class NothingIsSent(lk.ServerStrategy):
    """Workers compute without end, and the server waits for what they never send."""

    async def server(self, ctx, shard):
        async for request in ctx.inbox(lk.Push, lk.Pull):
            ctx.send(request.sender, shard.weights())

    async def worker(self, ctx, model):
        weights = await lk.pull(ctx)
        for batch in ctx.batches():
            await ctx.compute(model.gradient, weights, batch)


@dataclass(frozen=True)
class NothingIsAnswered(NothingIsSent):
    async def server(self, ctx, shard):
        async for _ in ctx.inbox(lk.Push, lk.Pull):
            pass


class TestFailedTrial:
    def test_a_run_that_makes_no_update_ends(self):
        trial = course.trial(NothingIsSent(), workers=2, updates=3)
        assert not trial.deadlock
        with pytest.raises(
            course.CheckFailed, match=r"The run failed: 100 s of virtual time were not .* 0 were applied"
        ):
            trial.check()

    def test_a_deadlock_is_named(self):
        trial = course.trial(NothingIsAnswered(), workers=2, updates=3)
        assert trial.deadlock
        with pytest.raises(course.CheckFailed, match="The run with two workers failed: deadlock after"):
            trial.check("two workers")


DATA = {
    "plain": lk.from_arrays(np.eye(64), np.arange(64) % 2),
    "weighted": lk.from_arrays(np.eye(64), np.arange(64) % 2, sample_weights=np.ones(64)),
}


@pytest.mark.parametrize(
    ("data", "options", "uses", "message"),
    [
        ("weighted", {"dtype": "float64"}, "check and trial", "without sample_weights"),
        ("plain", {"dtype": "float64", "class_weights": "balanced"}, "check and trial", "without class_weights"),
        ("plain", {"dtype": "float32"}, "trial", 'trained with dtype="float64"'),
    ],
)
def test_a_problem_with_which_no_model_is_graded_is_a_mistake_of_the_tests(data, options, uses, message):
    """The error is not a `CheckFailed`, which would cost the student points."""
    problem = lk.Problem(DATA[data], model=CNN(), **options)
    if "check" in uses:
        with pytest.raises(lk.BadInput, match=message):
            course.check_model(problem)
    with pytest.raises(lk.BadInput, match=message):
        course.trial(lk.SyncPS(), problem=problem)


class TestLikelyMistake:
    MISTAKES = {"a sum": [3.0, 4.0], "a number": 7, "no array": "seven"}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("got", "hint"),
        [(np.array([3, 4]), "a sum"), (7.0, "a number"), ("seven", "no array"), ([3, 5], "other"), (None, "other")],
    )
    def test_the_first_mistake_with_this_value_is_named(self, got, hint):
        assert course.likely_mistake(got, self.MISTAKES, "other") == hint


def orders(schedule, stages, micro_batches):
    """GPipe, or 1F1B: (P - 1 - k) forwards first at stage k."""
    found = []
    for stage in range(stages):
        ahead = micro_batches if schedule == "gpipe" else min(stages - 1 - stage, micro_batches)
        work = [("forward", i) for i in range(ahead)]
        for i in range(ahead, micro_batches):
            work += [("forward", i), ("backward", i - ahead)]
        found.append(work + [("backward", i) for i in range(micro_batches - ahead, micro_batches)])
    return found


class TestSchedule:
    @pytest.mark.parametrize("schedule", ["gpipe", "1f1b"])
    @pytest.mark.parametrize(("stages", "micro"), [(1, 4), (4, 8), (5, 3)])
    def test_duration_is_that_of_the_textbook(self, schedule, stages, micro):
        """(M + P - 1) (forward + backward): Huang et al., "GPipe", 2019."""
        assert course.schedule_seconds(orders(schedule, stages, micro), 1, 2) == 3 * (micro + stages - 1)

    def test_activations_that_each_stage_holds(self):
        assert [course.activations_held(work) for work in orders("gpipe", 4, 8)] == [8, 8, 8, 8]
        assert [course.activations_held(work) for work in orders("1f1b", 4, 8)] == [4, 3, 2, 1]
        assert course.activations_held([]) == 0

    def test_stages_that_wait_for_each_other_are_a_deadlock(self):
        first = [("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1)]
        last = [("forward", 0), ("forward", 1), ("backward", 0), ("backward", 1)]
        with pytest.raises(course.CheckFailed, match="deadlock"):
            course.schedule_seconds([first, last])


class TestExpectClose:
    def test_a_right_array_is_reported(self, capsys):
        course.expect_close("w", np.array([1.0, 2.0 + 1e-12]), [1, 2], "hint")
        assert capsys.readouterr().out == "w: as expected\n"

    @pytest.mark.parametrize(
        ("got", "message"),
        [([1.0], r"w has shape \(1,\) where \(2,\) was expected:\swhy"), ([1, 2.1], "w is not .* why")],
    )
    def test_a_wrong_array_fails_with_the_hint(self, got, message):
        with pytest.raises(course.CheckFailed, match=message):
            course.expect_close("w", got, [1, 2], "why")

    def test_the_tolerance(self):
        course.expect_close("w", [2.1], [2], "why", tolerance=0.1)


class Anything(np.ndarray):
    """Equals everything, for operators and for the functions of NumPy."""

    def __eq__(self, other):
        return np.ones(self.shape, bool)

    def __array_function__(self, func, types, args, kwargs):
        return np.True_ if func in (np.allclose, np.array_equal) else np.shape(np.asarray(self))

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        return np.zeros(self.shape)


class Shaped:
    """No array, but with a shape and a comparison of its own."""

    shape = (2,)

    def __eq__(self, other):
        return True

    __hash__ = None


def matrix(values):
    with warnings.catch_warnings(action="ignore", category=PendingDeprecationWarning):
        return np.matrix(values)


GARBAGE = [1.0, 99.0]  # where [1, 2] is right
ARRAYS = {
    "a masked array": np.ma.array(GARBAGE, mask=[0, 1]),
    "a masked array, all masked": np.ma.array(GARBAGE, mask=True),
    "a masked array with a fill value": np.ma.array(GARBAGE, mask=[0, 1], fill_value=2.0),
    "a subclass": np.array(GARBAGE).view(Anything),
    "a record array": np.array(GARBAGE).view(np.recarray),
    "a matrix": matrix(GARBAGE),
    "an array of objects": np.array([1.0, Number(99)], object),
    "a list of numbers of one's own": [1.0, Number(99)],
    "a masked array in a list": [np.ma.array(GARBAGE, mask=[0, 1])],
    "a named tuple with a shape": collections.namedtuple("N", "shape")((2,)),
    "an object with a shape": Shaped(),
    "text": np.array(["1", "2"]),
    "a structured array": np.array([(1, 2)], "i4,i4"),
    "dates": np.array(["2020", "2021"], "M8[Y]"),
    "None": None,
    "a dict": {0: 1.0, 1: 2.0},
    "not a number": [1.0, float("nan")],
    "one number for all": 1.0,
    "a complex part": [1.0, 2.0 + 1j],
}


@pytest.mark.parametrize("name", ARRAYS)
def test_values_that_decide_what_they_equal_are_not_equal(name):
    """Neither as an array, nor as a value, nor as a wrong value for which there is a hint."""
    with pytest.raises(course.CheckFailed, match="why"):
        course.expect_close("w", ARRAYS[name], [1.0, 2.0], "why")
    for want in ([1.0, 2.0], np.array([1.0, 2.0]), (1, 2), 2, "forward", [[1.0, 2.0]]):
        with pytest.raises(course.CheckFailed, match=r"was expected$"):
            course.expect("w", ARRAYS[name], want, {7: "seven", "backward": "the other one"})


VALUES = {
    "an enum": (Op.FORWARD, "forward", "backward"),
    "an IntEnum": (enum.IntEnum("N", "A B")["B"], 2, 1),
    "a number of one's own": (Number(1), 1, 2),
    "text of NumPy": (np.str_("a"), "a", "b"),
    "a fraction": (Fraction(3, 8), 0.375, 0.376),
    "a large fraction": (Fraction(2**70), 2**70, 2**69),
    "a decimal": (Decimal("0.375"), 0.375, 0.376),
    "a tuple of fractions": ((Fraction(1, 2), 1), [0.5, 1], [0.5, 2]),
    "an array of fractions": (np.array([Fraction(1, 2), 2], object), [0.5, 2], [0.5, 3]),
    "a 0-d array": (np.array(2.0), 2, 3),
    "a range": (range(3), [0, 1, 2], [0, 1, 3]),
    "a deque": (collections.deque([1, 2]), [1, 2], [2, 1]),
    "a schedule": ([(Op.FORWARD, np.int64(0))], [("forward", 0)], [("backward", 0)]),
    "a table": ({Op.FORWARD: Number(1)}, {"forward": 1}, {"forward": 2}),
    "a set": ({Op.FORWARD}, {"forward"}, {"backward"}),
    "a named tuple": (collections.namedtuple("N", "a b")(1, 2), (1, 2), (1, 3)),
    "arrays in a list": ([np.zeros(2), np.ones(3)], [[0, 0], [1, 1, 1]], [[0, 0], [1, 1, 2]]),
    "arrays in a dict": ({"a": np.ones(2)}, {"a": [1, 1]}, {"a": [1, 2]}),
    "a masked array without a mask": (np.ma.array([1.0, 2.0]), [1, 2], [1, 3]),
}


@pytest.mark.parametrize("name", VALUES)
def test_numbers_and_text_of_any_kind_are_compared_by_their_value(name):
    got, right, wrong = VALUES[name]
    course.expect("it", got, right)
    with pytest.raises(course.CheckFailed):
        course.expect("it", got, wrong)
