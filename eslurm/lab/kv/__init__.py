"""The key-value store that cells share, without its servers: for simulated clusters, studies and tests."""
