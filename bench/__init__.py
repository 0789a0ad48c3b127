"""Throughput of Penstock and its peers on the same images, the same work and the same cores."""
