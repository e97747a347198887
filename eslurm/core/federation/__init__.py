"""Membership in a federation of cells that share a key-value store: pure machines, driven by the controller's leader.

Nothing here counts events: each machine compares what the store holds with what it should hold and says what to do next, so
a change that was merged, lost or seen twice does no harm.
"""
