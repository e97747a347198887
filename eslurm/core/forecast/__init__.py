"""Accuracy of runtime forecasts and time limits, and the trust in a model."""
