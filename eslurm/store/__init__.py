"""Where a controller's facts and current rows are kept.

`sql.SqlStore` keeps the promise of `eslurm.ports.store`, as its twin without a disk in the simulator does. This package
imports nothing itself: its parts without SQL load no SQL toolkit.
"""
