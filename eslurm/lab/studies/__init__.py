"""Evaluation of estimators on recorded workloads."""
