"""PBS's commands over an eslurm cluster: `qsub`, `qstat` and `qdel`, the part of them that scripts use."""
