"""Data sets, one reader a file, by the name users type."""
