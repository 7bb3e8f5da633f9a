"""Stores that speak SQL: one family, one layout, one file for each engine."""
