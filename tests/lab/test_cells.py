"""Assignment of labs to notebook cells; and that the lab is loaded only when it is used."""

from __future__ import annotations

import subprocess
import sys

from labkit.lab import cells


def test_running_a_cell_again_closes_what_it_made_before():
    class Lab:
        closed = 0

        def close(self):
            self.closed += 1
            cells.forget(self)

    one, two, three, other = Lab(), Lab(), Lab(), Lab()
    cells.remember(one, ("cell", "first run"))
    cells.remember(two, ("cell", "first run"))
    cells.remember(other, ("other cell", "its run"))
    assert not one.closed
    cells.remember(three, ("cell", "second run"))
    assert (one.closed, two.closed, three.closed, other.closed) == (1, 1, 0, 0)
    assert cells.open_labs() == [other, three] or cells.open_labs() == [three, other]
    for lab in (three, other):
        lab.close()
    assert cells.open_labs() == []
    cells.remember(one, None)
    assert cells.open_labs() == []


def test_the_lab_is_not_loaded_before_it_is_used():
    code = "import sys, labkit.lab; sys.exit(any(m in sys.modules for m in ('anywidget', 'ipywidgets', 'matplotlib')))"
    subprocess.run([sys.executable, "-c", code], check=True)
