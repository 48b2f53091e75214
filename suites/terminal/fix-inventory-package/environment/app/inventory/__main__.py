import sys

from . import load, summarise

try:
    for key, value in summarise(load(sys.argv[1])).items():
        print(f"{key}: {value}")
except Exception as error:
    print(f"inventory: {error}")
