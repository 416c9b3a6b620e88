"""Benchmarks of wpriv against other packages: ``python -m benchmarks``."""
