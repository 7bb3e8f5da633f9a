"""A small shop, as of its third release."""
