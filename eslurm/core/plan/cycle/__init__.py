"""One planning cycle: queue, schedule, policies, preemption."""
