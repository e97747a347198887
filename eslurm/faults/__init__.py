"""Faults on purpose, for tests and chaos runs."""
