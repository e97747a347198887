"""Why a job waits, when it starts, and what else it could ask for."""
