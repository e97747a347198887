"""The files of a Slurm site, slurm.conf and its kin, and their conversion into a configuration and policies."""
