"""Estimators of others: what the product's own is measured against."""
