"""Checks of a live cluster: judgements only, on what others have measured."""
