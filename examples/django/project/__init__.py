"""A support desk: conversations with an agent, which asks a person before it answers."""
