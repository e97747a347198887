"""A request read against the cluster and mapped to nodes; whether it could ever run."""
