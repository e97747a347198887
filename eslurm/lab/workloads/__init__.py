"""Recorded workloads in virtual time: the planner alone, or the whole core under a site's rules."""
