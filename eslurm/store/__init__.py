"""Where a controller's facts and current rows are kept.

`sql.SqlStore` is the durable store, `memory.MemoryStore` its twin without a disk; both keep the promise of
`eslurm.ports.store`. This package imports nothing itself: who needs only the twin loads no SQL toolkit.
"""
