"""`esestd`, the estimator: it learns from jobs that ended how long others will run, and tells the controller (E-40)."""
