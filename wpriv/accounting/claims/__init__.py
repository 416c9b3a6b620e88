"""Decide claims about the privacy of a process, and which of two processes is more private."""
