"""`apt-get` for what is there already, and `curl` or `wget` for uv's installer."""
import os
import re
import subprocess
import sys

from .base import KIT, index, missing, real, run_real
from .tools import options

APT_STAND_INS = {'curl', 'wget', 'ca-certificates', 'python3-pip', 'python3-venv', 'python-is-python3', 'pipx'}


def apt(args, tool='apt-get'):
    found, rest = options(args, {'-o', '-t', '--option', '--target-release', '-c'})
    action = rest.pop(0) if rest else ''
    if action != 'install':
        return
    wanted = []
    for word in rest:
        name = word.split('=')[0].split(':')[0].split('/')[0]
        if word.startswith('-') or name in APT_STAND_INS or real(name):
            continue
        query = real('dpkg-query')
        done = query and subprocess.run([query, '-W', '-f', '${Status}', name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if not done or b'ok installed' not in done.stdout:
            wanted.append(name)
    if not wanted:
        return
    if index()['network']:
        if real(tool):
            subprocess.call([real(tool), 'update'])
        run_real(tool, ['install', '-y'] + wanted, 'apt package ' + ' '.join(wanted))
    missing('apt package ' + ' '.join(wanted), 100)


INSTALLER = r'''#!/bin/sh
bin=${UV_INSTALL_DIR:-${XDG_BIN_HOME:-$HOME/.local/bin}}
mkdir -p "$bin"
for tool in uv uvx; do rm -rf "$bin/$tool"; ln -s "@KIT@/bin/$tool" "$bin/$tool"; done
rm -rf "$bin/env"
printf 'export PATH="@KIT@/bin:@KIT@/state/bin:%s:$PATH"\n' "$bin" >"$bin/env"
'''


def fetch(tool, args):
    """uv's installer, whatever its version; every other address is the image's own command's."""
    addresses = ' '.join(args)
    if 'astral.sh/uv' in addresses or 'astral-sh/uv/releases' in addresses:
        text = INSTALLER.replace('@KIT@', KIT)
    elif 'bootstrap.pypa.io/get-pip.py' in addresses:
        text = ''
    else:
        command = real(tool)
        if command is None:
            missing(tool, 127)
        os.execv(command, [command] + args)
    output = None
    for at, word in enumerate(args[:-1]):
        if word in (('-o', '--output') if tool == 'curl' else ('-O', '--output-document', '-qO')):
            output = args[at + 1]
    if tool == 'curl' and any(word in ('-O', '--remote-name') or re.match(r'^-[A-Za-z]*O$', word) for word in args):
        output = 'install.sh'
    if tool == 'wget' and output is None and not any(re.match(r'^-[A-Za-z]*O-$', word) for word in args):
        output = 'install.sh'
    if output in (None, '-'):
        sys.stdout.write(text)
    else:
        with open(output, 'w') as file:
            file.write(text)
