"""An independent verifier of certificates: one file, ``prove.py``, that shares no code with the accountants."""
