"""Decisions about jobs."""
