"""Are the data fit to judge a model on? Copies, wrong labels, balance."""
