"""Slurm's own commands over this cluster: thin, over the calls of `es*`; tables and texts are in `eslurm.compat.slurm`."""
