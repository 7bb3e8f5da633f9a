"""An app of a user's: talks that have a thread each."""
