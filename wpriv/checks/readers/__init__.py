"""Readers of other programs' objects and files; one file each, with ``recognises`` and ``read``.

``recognises(x)`` is true of the live objects and the paths that the reader knows, by names of types and files alone;
``read(x, further)`` returns a ``Found``. Nothing is unpickled, no method that changes an object is called, and no
library is imported to read a file.
"""
