"""Values whose extents vary with the point: physical shapes, valid lengths, masks."""
