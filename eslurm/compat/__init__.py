"""Every Slurm spelling: options, directives, variables, formats. The core knows none of it.

Pure, and imported by commands whose whole run takes 20 ms: modules here import neither `re`, `typing` nor
`msgspec` at run time (7 to 24 ms each).
"""
