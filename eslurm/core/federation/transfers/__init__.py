"""Transfers of waiting jobs between cells: offers, the keys that decide between two cells, arrivals (ADR 31).

Machines without I/O; `transfers.Transfers` drives them.
"""
