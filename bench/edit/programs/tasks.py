"""A list of things to do."""

import json
from dataclasses import dataclass


@dataclass
class Task:
    title: str
    done: bool = False
    priority: int = 0


class TaskList:
    def __init__(self):
        self.tasks = []

    def add(self, title, priority=0):
        task = Task(title, priority=priority)
        self.tasks.append(task)
        return task

    def finish(self, title):
        for task in self.tasks:
            if task.title == title:
                task.done = True

    def open_tasks(self):
        result = []
        for task in self.tasks:
            if not task.done:
                result.append(task)
        return result

    def by_priority(self):
        return sorted(self.tasks, key=lambda task: task.priority)

    def save(self, path):
        data = [{"title": t.title, "done": t.done, "priority": t.priority} for t in self.tasks]
        with open(path, "w") as f:
            json.dump(data, f)

    def summary(self):
        done = len([t for t in self.tasks if t.done])
        return str(done) + " of " + str(len(self.tasks)) + " done"
