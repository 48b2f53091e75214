"""The verifier's kit inside a sandbox: what test scripts fetch from the network (uv, pytest, a few packages), from a folder instead.

    python3 -I -S -B kit.py uv|uvx|pip|apt-get|curl|wget ARGS...    stands in for that command
    python3 -I -S -B kit.py pytest [--here] ARGS...                 the image's own pytest, without what the agent planted

What cannot be given is written to state/missing: the verification then has no verdict. Notes (other versions) go to state/notes.
index.json: packages (name, version, file, requires) and whether there is a network. Runs on any Python from 3.7; the packages need 3.9.
"""
import os
import sys

KIT = os.path.dirname(os.path.abspath(__file__))
# For these imports alone: the tests find nothing of the kit's by accident.
sys.path.insert(0, KIT)
from terminal_rsi_kit.packages import installed
from terminal_rsi_kit.pytests import image_pytest
from terminal_rsi_kit.system import apt, fetch
from terminal_rsi_kit.tools import pip, run, uv, uvx

sys.path.remove(KIT)


def main():
    name, args = sys.argv[1], sys.argv[2:]
    if name in ('uv', 'uvx'):
        {'uv': uv, 'uvx': uvx}[name](args)
    elif name in ('pip', 'pip3'):
        pip(args)
    elif name in ('apt', 'apt-get'):
        apt(args, name)
    elif name in ('curl', 'wget'):
        fetch(name, args)
    elif name == 'command':
        run(installed(), args[0], args[1:])
    else:
        image_pytest(args)


main()
