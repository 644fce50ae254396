"""What `scripts/benchmark.py` measures, one module for each table of its page."""
