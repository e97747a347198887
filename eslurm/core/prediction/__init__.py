"""Predictors of node failures, and their scores."""
