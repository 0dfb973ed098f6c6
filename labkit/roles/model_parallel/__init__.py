"""Roles that share one model: pipeline stages with their schedules, and tensor-parallel ranks."""
