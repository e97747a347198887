"""Proof that the cluster in containers works: `make verify-compose`. Needs a container engine; pytest leaves it alone."""
