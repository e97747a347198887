"""External sources of failure predictions: a polled Prometheus, an Alertmanager webhook, and predictors that a site
installs (E-27, E-28).

Invariant: whatever a source does (dead, slow, wrong, hostile), the controller's loop goes on: every read has a bound in
bytes and seconds, and alerts change a node's place in a tree, never its state (E-26).
"""
