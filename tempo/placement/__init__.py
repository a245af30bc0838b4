"""Where tensors lie on a mesh of devices."""
