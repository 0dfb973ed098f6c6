"""Whom labkit is compared with, one file each. A peer knows nothing of the benchmark that measures it."""
