"""The published curves of broadcast times (E-32, E-64, E-65, E-69) from a model of the network, up to 1,000,000 nodes.

The trees are the product's own; the model only says how long their parts take. `python -m benchmarks.curves`.
"""
