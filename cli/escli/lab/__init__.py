"""`eslurm`: simulations, replays and evaluations."""
