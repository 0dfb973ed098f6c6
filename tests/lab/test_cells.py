"""Assignment of labs to notebook cells; and that the lab is loaded only when it is used."""

from __future__ import annotations

import subprocess
import sys

import ipywidgets

from labkit.lab import cells
from labkit.lab.page.frontend import FrameAcknowledgement, receive_during_cells


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


def test_the_messages_of_a_widget_do_not_wait_for_the_cell_that_made_it():
    button = ipywidgets.Button()
    button.comm._reply_subshell_id = None  # as ipykernel 7.4 does whenever a cell sends a message to the widget
    receive_during_cells(button)
    assert "_reply_subshell_id" not in vars(button.comm)
    button.close()
    receive_during_cells(button)


def test_a_frame_is_acknowledged_when_the_browser_has_copied_its_number():
    received = []
    one = FrameAcknowledgement(received.append)
    one.send(3)
    assert received == []
    one.shown.value = one.sent.value  # what the link does in the browser
    assert received == [3]
    one.close()


def test_the_lab_is_not_loaded_before_it_is_used():
    code = "import sys, labkit.lab; sys.exit(any(m in sys.modules for m in ('ipywidgets', 'matplotlib')))"
    subprocess.run([sys.executable, "-c", code], check=True)
