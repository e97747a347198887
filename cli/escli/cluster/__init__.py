"""The personal cluster: `eslurm up`, `status`, `down` and the demo."""
