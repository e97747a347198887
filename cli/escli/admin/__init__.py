"""Commands for administrators of a cluster."""
