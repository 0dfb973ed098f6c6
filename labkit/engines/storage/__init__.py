"""Files of a run: checkpoints of its roles, and the journal from which the run is resumed by another process.

From low to high level: `locations` (a folder or an fsspec URL), `checkpoint_format` (bytes), `store` (the newest states of every
role), `journal` (commands and progress).
"""
