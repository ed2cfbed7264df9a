"""How much volume does the network's minimum have? The Fisher determinant of Jia & Su."""
