"""Each scenario takes a `Setting` and adds lines to its table."""
