"""Reproduce the tables and figures of the five papers: run their recipes, and put published numbers beside ours."""
