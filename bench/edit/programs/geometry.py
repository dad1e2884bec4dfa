"""Points and shapes in the plane."""

import math


class Point:
    def __init__(self, x, y):
        self.x = x
        self.y = y

    def distance(self, other):
        dx = self.x - other.x
        dy = self.y - other.y
        return math.sqrt(dx * dx + dy * dy)

    def moved(self, dx, dy):
        return Point(self.x + dx, self.y + dy)


class Circle:
    def __init__(self, center, radius):
        self.center = center
        self.radius = radius

    def area(self):
        return 3.14 * self.radius**2

    def contains(self, point):
        return self.center.distance(point) <= self.radius


def bounding_box(points):
    xs = [p.x for p in points]
    ys = [p.y for p in points]
    return min(xs), min(ys), max(xs), max(ys)


def perimeter(points):
    length = 0
    for i in range(len(points) - 1):
        length += points[i].distance(points[i + 1])
    return length


def centroid(points):
    n = len(points)
    return Point(sum(p.x for p in points) / n, sum(p.y for p in points) / n)
