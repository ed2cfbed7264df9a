"""How strongly inputs, representations and weights move the output, and the bounds between them."""
