"""Reads INI-like configuration files."""

import os

DEFAULTS = {"host": "localhost", "port": "8080", "debug": "no"}


class ConfigError(Exception):
    pass


def parse_line(line):
    """Returns a (key, value) pair, or None for blank lines and comments."""
    line = line.strip()
    if not line or line.startswith("#"):
        return None
    key, value = line.split("=", 1)
    return key.strip(), value.strip()


def load(path, defaults=DEFAULTS):
    settings = dict(defaults)
    f = open(path)
    for line in f:
        pair = parse_line(line)
        if pair:
            settings[pair[0]] = pair[1]
    f.close()
    return settings


def get_bool(settings, key):
    value = settings[key]
    return value in ("yes", "true", "1")


def get_int(settings, key):
    return int(settings[key])


def from_environment(prefix):
    found = {}
    for name, value in os.environ.items():
        if name.startswith(prefix):
            found[name[len(prefix) :].lower()] = value
    return found
