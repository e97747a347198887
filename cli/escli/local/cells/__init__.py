"""A federation of several cells on this machine: `eslurm up --cells`."""
