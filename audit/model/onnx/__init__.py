"""From an ONNX file to the network in it: read, simplify, find the scores, rewrite the dense layers, convert."""
