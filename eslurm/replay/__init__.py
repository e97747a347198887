"""The log of facts outside the store: base states, files of facts, and replay. Only applies, never decides."""
