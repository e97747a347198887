"""Run times: how good forecasts and time limits were, and when a model is believed."""
