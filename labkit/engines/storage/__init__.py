"""Files of a run: checkpoints of its roles, and the journal with which the run goes on when the program is gone.

`locations` (a folder, or a URL that fsspec reaches) < `checkpoint_format` (bytes) < `store` (the newest states of every role) <
`journal` (commands, and how far the run has come).
"""
