"""Amounts, sets of nodes, devices, the ledger, one resource over time, windows of time."""
