"""Decisions about accounts, limits and reservations."""
