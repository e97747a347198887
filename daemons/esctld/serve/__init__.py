"""What the leading controller answers: requests, lists, reasons, events."""
