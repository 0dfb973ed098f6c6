"""Initial cells of several browser tests."""

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
