"""Adapters of a federation: the key-value store that its cells share."""
