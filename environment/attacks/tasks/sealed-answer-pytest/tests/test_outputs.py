import json


def test_answer():
    with open("/app/answer.txt") as stream:
        lines = stream.read().split("\n")
    assert json.dumps(lines) == json.dumps(["robrah", "nretnal", "wodaem", "ztrauq", "etals", ""])
