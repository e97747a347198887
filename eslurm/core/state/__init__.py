"""The cluster's state, its indexes, and the one way to change it: `apply`."""
