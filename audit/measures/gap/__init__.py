"""How much worse is the model on data it has not seen?"""
