"""Reads submissions, runs the tests on their answers, and writes scores and feedback.

Modules that read: `submissions` (files by student), `lms`, `attempts`, `reader` and its confined `reader_process`,
which uses `archive`, `submitted_notebook`, `answers` and `magics`. Modules that run: `rebuild` (makes the notebook that
is run), `nbval_run`, `nbval_plugin`. Modules that score: `grade`, `scores`, `batch`, `journal`, `reports`, `feedback`,
`plain_text`. Modules for students: `check`, `jupyter_servers`.
"""
