"""A small shop, as of its first release."""
