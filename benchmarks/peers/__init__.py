"""The systems with which labkit is compared, one file each. A peer does not depend on the benchmark that measures it."""
