"""Initial cells of several browser tests, and conditions."""

DASK = """
import labkit as lk
lab = lk.Lab().set(seconds=600)
lab.cluster.open(6)
lab.run()
"""
SIMULATED = """
import labkit as lk
lab = lk.Lab(lk.Problem("digits", hidden=(16,)), "async-ps", lk.SimulatedCluster(workers=4, compute=0.1)).set(seconds=600)
lab.run()
"""
# A condition in the kernel; JavaScript and a selector for the page.
LIVE = "lab.view().state == 'running' and not lab.view().simulated and lab.view().t > 0"
TEXT = "document.querySelector('.labkit-lab').innerText"
SHEET = ".labkit-lab .lk-sheet"  # of forecasts and calibrations
