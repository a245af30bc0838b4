"""Structure that only a run's data say: looked at beforehand, and executed as if batched by hand.

promises    indices that are known before a run, computed and checked
rows        lengths of rows, checked with every read behind their end
inspector   from indices, or lengths, to an order in tiles of points
wavefront   runs in such tiles, where that is cheaper
compaction  rows that go on are moved together
"""
