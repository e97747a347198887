"""Benchmarks of run time estimates on public logs: accuracy, cost, and their worth to a plan."""
