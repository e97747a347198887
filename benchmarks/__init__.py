"""Measurements of `make bench`: a throw-away cluster of real processes on loopback, its figures as JSON lines.

One module per group of figures. Invariant: daemons run on their default code path; nothing that only a benchmark
uses makes them faster. A floor is measured in the same run as the figure above it, in turns with it.
"""
