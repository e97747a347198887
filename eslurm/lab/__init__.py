"""Experiments: the simulator, recorded workloads, studies of estimators."""
