"""Small helpers for text."""

import re

VOWELS = "aeiou"


def slugify(title):
    slug = title.lower()
    slug = re.sub(r"[^a-z0-9]+", "-", slug)
    return slug.strip("-")


def truncate(text, length):
    if len(text) <= length:
        return text
    return text[:length]


def word_count(text):
    counts = {}
    for word in text.split():
        if word in counts:
            counts[word] = counts[word] + 1
        else:
            counts[word] = 1
    return counts


def count_vowels(s):
    n = 0
    for c in s:
        if c in VOWELS:
            n = n + 1
    return n


def wrap(text, width):
    lines, line = [], ""
    for word in text.split():
        if len(line) + len(word) + 1 > width and line:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}".strip()
    if line:
        lines.append(line)
    return lines


def is_palindrome(text):
    return text == text[::-1]
