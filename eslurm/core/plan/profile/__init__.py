"""The resource profile over time, and the search for a start in it."""
