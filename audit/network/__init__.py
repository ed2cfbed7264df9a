"""A model on its data: which layers it has, and what one pass over the samples leaves for the measures."""
