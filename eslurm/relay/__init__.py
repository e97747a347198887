"""The relay's shell: it moves what `core.tree.relay` and the links have to say to each other.

Shared by satellites, agents and the controller. No policy lives here.
"""
