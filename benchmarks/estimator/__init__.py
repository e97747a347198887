"""What estimates of running times are worth and cost: benchmarks on public logs."""
