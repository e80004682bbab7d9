"""A copy of a store that a broker may write meanwhile: complete, settled, proven; its manifest is written last."""
