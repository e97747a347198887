"""eslurm: a resource manager for supercomputers. See docs/architecture.md."""

__version__ = "0.1.0"
