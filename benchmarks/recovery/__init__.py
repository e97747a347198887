"""What is left after something went wrong, and how soon: `python -m benchmarks.run recovery`."""
