"""Compile a request, map it to nodes, and check whether it can ever run."""
