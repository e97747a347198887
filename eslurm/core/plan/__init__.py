"""The planner, from the placement of one request to a whole cycle."""
