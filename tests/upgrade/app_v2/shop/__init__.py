"""A small shop, as of its second release."""
