"""Check runs of any library: premises read from its objects and files, and the verdict on what was claimed of them."""
