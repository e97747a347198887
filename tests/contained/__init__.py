"""Containment of jobs on a machine with all controllers of cgroup v2: run as root by `python -m tests.contained`."""
