"""The controller that waits: it follows the log and watches the leader."""
