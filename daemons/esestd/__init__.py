"""`esestd`, the estimator: it learns from ended jobs and sends runtime forecasts to the controller (E-40)."""
