"""Clover: the block-diffusion model, its decoding, training and serving.

Only `clover_engine.api`, `clover_engine.errors`, `clover_engine.local` and
`clover_engine.testing` are free of torch; `clover_engine.model` and `clover_engine.decode` are not.
"""
