"""Strategies by which a cell finds nodes of other cells for a job, and their interface."""
