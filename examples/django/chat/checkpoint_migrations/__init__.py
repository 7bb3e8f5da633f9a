"""How stored state changes from one release to the next."""
