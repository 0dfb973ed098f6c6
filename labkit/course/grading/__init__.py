"""Reads submissions, runs the tests on their answers, and writes scores and feedback.

Reading: `submissions` (files by student), `lms`, `attempts`, `reader` and its confined `reader_process` (`archive`,
`submitted_notebook`, `answers`, `magics`). Running: `rebuild` (the notebook that is run), `nbval_run`, `nbval_plugin`. Scoring:
`grade`, `scores`, `batch`, `journal`, `reports`, `feedback`. For students: `check`, `jupyter_servers`.
"""
