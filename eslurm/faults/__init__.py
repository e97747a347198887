"""Fault injection, for tests and chaos runs."""
