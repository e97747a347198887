"""The store of a controller's facts and current rows.

`sql.SqlStore` is the durable store, `memory.MemoryStore` its twin without a disk; both implement `eslurm.ports.store`.
This package imports nothing itself: users of the twin alone load no SQL toolkit.
"""
