"""Decoding: plain autoregression, block denoising, self-speculation, scoring and cloze fills.

Works on token ids; text, prompts and budgets are `clover_engine.inprocess.embedded`'s.
"""
