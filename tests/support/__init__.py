"""Helpers of all tests: leak checks, loops, golden texts, seeds, short directories. Tested itself.

The fixtures reach every test through `tests/conftest.py`; plain functions are imported from here.
"""
