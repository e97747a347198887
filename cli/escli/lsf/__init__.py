"""LSF's commands over an eslurm cluster: `bsub`, `bjobs` and `bkill`, the part of them that scripts use."""
