"""Clients of served models: engines that speak HTTP to a server which has the weights.

No module here imports torch, and none imports the HTTP library before its first request: a
command or a language server that never asks a server does not pay for one.
"""
