"""Limits, pools and reservations as constraints on a start."""
