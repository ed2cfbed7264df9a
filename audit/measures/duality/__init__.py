"""Where does the gap come from? The A-W decomposition of Feng & Tu."""
