"""The engine of real time."""
