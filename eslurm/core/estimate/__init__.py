"""Run times: what is forecast of a job, how good that was, and what users may learn from it."""
