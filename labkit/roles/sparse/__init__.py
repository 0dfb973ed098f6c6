"""Roles for sparse models: servers own rows of an embedding table; workers pull and push the rows of their batches."""
