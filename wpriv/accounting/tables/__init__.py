"""Tables of the calculator that are no points of privacy curves; ``wpriv/papers/tables`` says what a table is."""
