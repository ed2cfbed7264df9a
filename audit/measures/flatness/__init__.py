"""How flat is the minimum, whatever the scale of the weights? The measures of Petzka et al."""
