"""Roles that hold one model together: pipeline stages with their schedules, and tensor-parallel ranks."""
