"""The measurements of `scripts/benchmark.py`, one module for each table of its page."""
