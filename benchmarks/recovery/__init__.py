"""Recovery from faults: losses and durations, `python -m benchmarks.run recovery`."""
