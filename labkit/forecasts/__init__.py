"""How fast a run would be, before it is started: sweeps, measured costs, forecasts and advice.

From bottom to top; each imports only from those before it:

- `arguments`: the arguments of the functions below.
- `sweeps`: `lk.sweep`, a grid of runs as a table with one row per run.
- `steady_state`: a timing-only run, as long as the precision of its throughput needs.
- `calibration/`: `lk.calibrate`, the measured costs of a cluster, and the simulated cluster that stands for it.
- `forecast`: `lk.forecast`, a sweep with measured costs over numbers of workers.
- `forecaster`: the dashed curve of a lab, steady states with measured costs that follow the commands of a run.
- `advice/`: `lk.advise`, steady states of all strategies, ranked and explained.
"""
