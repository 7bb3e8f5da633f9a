"""A small shop, as of its fourth release."""
