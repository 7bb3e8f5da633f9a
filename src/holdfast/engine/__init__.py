"""All that LangGraph means by a checkpoint, written once, over any backend."""
