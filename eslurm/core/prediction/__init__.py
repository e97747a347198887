"""Predictors of node failures, and how good they are."""
