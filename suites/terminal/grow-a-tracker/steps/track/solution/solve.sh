#!/bin/bash
set -e
cat > /app/tracker.py <<'PY'
import json
import os
import sys

FILE = os.environ.get("TRACKER_FILE", "/app/tasks.json")


def read():
    if not os.path.exists(FILE):
        return {"next": 1, "tasks": {}}
    with open(FILE) as stream:
        state = json.load(stream)
    return {"next": state["next"], "tasks": {int(number): text for number, text in state["tasks"].items()}}


def write(state):
    with open(FILE + ".new", "w") as stream:
        json.dump(state, stream)
    os.replace(FILE + ".new", FILE)


def add(text):
    state = read()
    number = state["next"]
    state["next"], state["tasks"][number] = number + 1, text
    write(state)
    print(number)


def show():
    for number, text in sorted(read()["tasks"].items()):
        print(number, text)


def remove(number):
    state = read()
    del state["tasks"][int(number)]
    write(state)


COMMANDS = {("add", 1): add, ("list", 0): show, ("remove", 1): remove}

if __name__ == "__main__":
    try:
        COMMANDS[(*sys.argv[1:2], len(sys.argv) - 2)](*sys.argv[2:])
    except (KeyError, ValueError, TypeError, AttributeError, OSError) as error:
        print(f"tracker: {error}", file=sys.stderr)
        sys.exit(1)
PY
