"""The Hessian of each dense layer: its products, its traces and its leading directions."""
