"""`eslurm`: a cluster on this host, and hosts that join one."""
