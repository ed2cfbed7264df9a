"""Models of PyTorch: .pt2, TorchScript, weights with the code that builds their network, modules in memory."""
