"""How the data of older releases becomes that of newer ones."""
