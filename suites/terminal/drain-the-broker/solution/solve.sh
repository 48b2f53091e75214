#!/bin/bash
set -e
python3 - <<'PY'
import json
import re
from decimal import ROUND_HALF_UP, Decimal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

BASE = "http://127.0.0.1:9090"


def session():
    return json.load(urlopen(Request(f"{BASE}/session", method="POST")))["token"]


token, cursor, readings = session(), None, {}
while True:
    query = "" if cursor is None else f"?after={cursor}"
    try:
        page = json.load(urlopen(Request(f"{BASE}/topics/readings/messages{query}", headers={"Authorization": f"Bearer {token}"})))
    except HTTPError as error:
        if error.code == 401:
            token = session()
        elif error.code != 503:
            raise
        continue
    for message in page["messages"]:
        sensor, value, unit = re.search(r"sensor=(\w+);temp=(-?[\d.]+)([CF])", message["body"]).groups()
        readings[message["id"]] = (sensor, Decimal(value) if unit == "C" else (Decimal(value) - 32) * 5 / 9)
    cursor = page["next"]
    if cursor is None:
        break
sensors = {}
for sensor, celsius in readings.values():
    sensors.setdefault(sensor, []).append(celsius)
with open("/app/readings.csv", "w") as stream:
    print("sensor,count,min,max,mean", file=stream)
    for sensor, values in sorted(sensors.items()):
        figures = (min(values), max(values), sum(values) / len(values))
        print(sensor, len(values), *(value.quantize(Decimal("0.01"), ROUND_HALF_UP) for value in figures), sep=",", file=stream)
PY
