"""Estimators of running times: the product's own, its rivals, their plug-ins, evaluation on logs, and models as files."""
