"""The simulator: whole clusters in virtual time with drawn faults."""
