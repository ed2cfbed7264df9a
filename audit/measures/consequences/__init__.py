"""What small changes of the inputs and of the weights do to the answers."""
