"""The node agent as a state machine."""
