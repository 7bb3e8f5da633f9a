"""The tables: the library's own storage formats."""
