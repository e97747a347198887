"""PMI for the tasks of a step: the wire protocols PMI-1 and PMI-2 as machines without I/O (ADR 43)."""
