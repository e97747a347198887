"""Tokens of remote callers: what was issued, its bounds, and what takes it back."""
