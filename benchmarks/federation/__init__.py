"""Cells that share an etcd, and that etcd itself: `python -m benchmarks.run federation`."""
