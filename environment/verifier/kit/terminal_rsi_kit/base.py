"""What all parts share: the kit's folder, its index, what is missing, and the image's own commands."""
import json
import os
import subprocess
import sys

KIT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
STATE = KIT + '/state'
SITE = STATE + '/site'


def append(name, text):
    with open(os.path.join(STATE, name), 'a') as file:
        file.write(text + '\n')


def note(text):
    append('notes', text)
    print('verifier kit: ' + text, file=sys.stderr)


def missing(what, code=1):
    append('missing', what)
    print('verifier kit: not there without a network: ' + what, file=sys.stderr)
    sys.exit(code)


def index():
    with open(KIT + '/index.json') as file:
        return json.load(file)


def python():
    with open(KIT + '/python') as file:
        return file.read().strip()


def real(name):
    """The image's own command, or None."""
    for folder in os.environ.get('PATH', '').split(':'):
        path = os.path.join(folder, name)
        if folder.startswith('/') and not folder.startswith(KIT) and os.access(path, os.X_OK) and not os.path.realpath(path).startswith(KIT):
            return path
    return None


def run_real(name, args, what):
    """The image's command with the network; what it cannot do is missing."""
    command = real(name)
    code = subprocess.call([command] + args) if command else 127
    if code != 0:
        missing(what, code)
    sys.exit(0)
