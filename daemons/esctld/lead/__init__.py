"""The controller that leads: dispatcher, planner, broadcasts, links."""
