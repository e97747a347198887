"""Checks of a live cluster: judgements only, on measurements of others."""
