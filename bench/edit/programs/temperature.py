"""Readings of weather stations."""

from statistics import mean

FREEZING = 0.0


def to_fahrenheit(celsius):
    return celsius * 9 / 5 + 32


class Station:
    def __init__(self, name, readings=None):
        self.name = name
        self.readings = readings or []

    def record(self, value):
        self.readings.append(value)

    def average(self):
        return mean(self.readings)

    def highest(self):
        result = self.readings[0]
        for r in self.readings:
            if r > result:
                result = r
        return result

    def frost_days(self):
        days = 0
        for r in self.readings:
            if r < 0.0:
                days += 1
        return days

    def to_dict(self):
        return {"name": self.name, "readings": self.readings}


def coldest(stations):
    return min(stations, key=lambda s: min(s.readings))


def parse_reading(text):
    name, value = text.split(";")
    return name, float(value)
