"""Vectors, node sets, devices, the ledger, timelines, time windows."""
