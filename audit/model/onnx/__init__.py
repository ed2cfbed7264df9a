"""From an ONNX file to the network in it: read, prepare, find the scores, rewrite the dense layers, convert."""
