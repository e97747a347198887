"""The log of facts outside the store: base states, files of facts, and playing them. Only applies, never decides."""
