"""An independent verifier of certificates, which shares no code with the accountants; ``prove.py`` is its entry."""
