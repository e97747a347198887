"""Cost of planning: benchmarks of the book of the future and of the planner on it."""
