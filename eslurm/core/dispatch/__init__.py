"""Delivery of effects to the nodes: broadcasts, heartbeats, satellites, reports, the election of the leader."""
