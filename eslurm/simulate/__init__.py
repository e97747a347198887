"""Replaying logs of real machines: the planner in virtual time, what it made of them, and pictures of that."""
