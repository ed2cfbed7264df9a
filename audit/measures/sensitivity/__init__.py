"""How strongly do inputs and weights move the output? MLS, volume and the bounds that tie them to sharpness."""
