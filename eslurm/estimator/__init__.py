"""Estimators of run times, their registry for plug-ins, evaluation on logs, and models as files."""
