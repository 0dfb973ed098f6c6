"""The optimal checkpoint interval.

A checkpoint always costs time, and a failure costs all work since the last checkpoint. The interval balances the two.

    C  cost: how long one checkpoint takes          F  mtbf: mean time between failures
    R  restart: how long it takes to begin again    t  work between two checkpoints

All four have the same unit of time, seconds or hours. The time between failures is exponential with mean F.
Young, "A first order approximation to the optimum checkpoint interval", Communications of the ACM 17 (9), 1974.
Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer
Systems 22 (3), 2006.
"""

from __future__ import annotations

import math

from ..errors import BadInput, shown
from ..options import as_number


def young(cost: float, mtbf: float) -> float:
    """Return the work between two checkpoints that loses the least time, to first order (Young 1974).

    It is sqrt(2 C F). This is accurate if C is far below F, because it ignores failures during a checkpoint and several failures
    in one interval.

    Parameters
    ----------
    cost : float
        The time C that a checkpoint takes, at least 0.
    mtbf : float
        The mean time F between failures, above 0, in the same unit.

    Returns
    -------
    float
        The work, in the same unit.

    Raises
    ------
    BadInput
        If an argument is not allowed.

    See Also
    --------
    daly : The same to higher order.

    Examples
    --------
    A checkpoint takes a minute, and a machine fails once a day (in seconds):

    >>> round(lk.lessons.young(cost=60, mtbf=86_400))
    3220
    """
    _check(above={"mtbf": mtbf}, least={"cost": cost})
    return math.sqrt(2 * cost * mtbf)


def daly(cost: float, mtbf: float) -> float:
    """Return the work between two checkpoints that loses the least time, to higher order (Daly 2006).

    It is sqrt(2 C F) (1 + sqrt(C / 2F) / 3 + (C / 2F) / 9) - C, or F if a checkpoint takes at least 2 F. This work
    nearly minimises `segment_time` per work. The minimum does not depend on the time of a restart.

    Parameters
    ----------
    cost : float
        The time C that a checkpoint takes, at least 0.
    mtbf : float
        The mean time F between failures, above 0, in the same unit.

    Returns
    -------
    float
        The work, in the same unit.

    Raises
    ------
    BadInput
        If an argument is not allowed.

    Examples
    --------
    >>> round(lk.lessons.daly(cost=60, mtbf=86_400))
    3180
    """
    _check(above={"mtbf": mtbf}, least={"cost": cost})
    if cost >= 2 * mtbf:
        return float(mtbf)
    ratio = cost / (2 * mtbf)
    return math.sqrt(2 * cost * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - cost


def segment_time(work: float, cost: float, restart: float, mtbf: float) -> float:
    """Return the mean time until some work and the checkpoint after it are done, including failures and restarts.

    It is F e^(R/F) (e^((t+C)/F) - 1) (Daly 2006). A failure in the segment, or in the restart, loses the work of the segment and
    causes a restart.

    Parameters
    ----------
    work : float
        The time t of the work without failures, at least 0.
    cost : float
        The time C that a checkpoint takes, at least 0.
    restart : float
        The time R until work continues after a failure, at least 0.
    mtbf : float
        The mean time F between failures, above 0. All times are in one unit.

    Returns
    -------
    float
        The time, in the same unit; infinity if it overflows.

    Raises
    ------
    BadInput
        If an argument is not allowed.

    Examples
    --------
    An hour's work takes 4% longer with a checkpoint and failures (in seconds):

    >>> round(lk.lessons.segment_time(work=3600, cost=60, restart=120, mtbf=86_400))
    3744
    """
    _check(above={"mtbf": mtbf}, least={"work": work, "cost": cost, "restart": restart})
    try:
        return mtbf * math.exp(restart / mtbf) * math.expm1((work + cost) / mtbf)
    except OverflowError:
        return math.inf


def _check(above: dict[str, float], least: dict[str, float]) -> None:
    for names, allowed in ((above, "a finite time above 0"), (least, "a finite time, at least 0")):
        for name, value in names.items():
            number = as_number(value)
            if number is None or not 0 <= number < math.inf or (names is above and number == 0):
                raise BadInput(f"{name}={shown(value)}: give {allowed}, in the same unit as the others.")
