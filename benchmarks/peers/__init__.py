"""The systems that labkit is compared with, one file each. A peer does not depend on the benchmark that measures it."""
