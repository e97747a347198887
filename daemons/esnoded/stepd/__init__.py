"""`esstepd`, the step supervisor of one agent process, and the agent's client to it.

The supervisor outlives the agent. What needs root is in `esnoded.procd`, a process of its own. Neither imports gRPC or
asyncio; only `client` does the latter, so nothing here may import `client`.
"""
