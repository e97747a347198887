"""`esstepd`, the step supervisor of one agent process, and the agent's client to it.

The supervisor outlives the agent. It imports neither gRPC nor asyncio; only `client` does the latter,
so nothing here may import `client`.
"""
