"""What all formats share once they are read: final layers, einsum equations and the names of layers."""
