"""Slurm's commands: their options, fields, formats and texts, as `cli/escli/slurm` reads and writes them. Pure."""
