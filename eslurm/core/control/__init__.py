"""Decisions: messages into facts, facts into effects, timers, the planner's results."""
