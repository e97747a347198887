"""Answers of the leading controller: requests, lists, reasons, events."""
