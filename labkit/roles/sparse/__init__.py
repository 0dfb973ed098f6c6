"""Roles of sparse models: servers own rows of an embedding table, and workers pull and push the rows of their batches."""
