"""Explanations for users: waiting reasons, expected starts, alternative requests."""
