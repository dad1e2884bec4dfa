"""Decoding: plain autoregression, block denoising, self-speculation, scoring and cloze fills.

Everything here works on token ids; text, prompts and budgets are `clover_engine.embedded`'s.
"""
