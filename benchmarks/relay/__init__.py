"""Measurements of `make bench-relay`: one broadcast and its aggregated answer, over real links between processes.

The controller's part is played by a root of its own (relay, driver, links: the product's), satellites are `essatd`
as it is, agents are host processes that each serve thousands of nodes. Invariants: every structure uses the same
links, the same nodes and the same failures; what was acted on is counted where it was done, not inferred from answers.
"""
