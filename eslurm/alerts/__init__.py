"""Where predictions of failing nodes come in from outside: a Prometheus that is asked, an Alertmanager that tells, and
predictors that a site installs (E-27, E-28).

Invariant: whatever is out there does (dead, slow, wrong, hostile), the controller's loop goes on: every read has a bound
in bytes and seconds, and what is learned here changes a node's place in a tree, never its state (E-26).
"""
