"""`uv`, `uvx` and `pip`, as far as test scripts use them."""
import os
import re
import shutil
import subprocess
import sys

from .base import KIT, STATE, index, missing, python, real
from .packages import entry_points, install, installed, lacks, project_requirements, read_requirements, requirement, resolve, wheel
from .pytests import call, start_pytest


def run(texts, command, args):
    """A command in an environment of those packages alone, as uv makes one; the folder it runs in brings no library."""
    packages = index()['packages']
    names, folders = resolve(texts)
    wheels = [wheel(packages[name]) for name in names]
    if re.match(r'^python[0-9.]*$', command):
        if args[:2] == ['-m', 'pytest']:
            sys.path[:] = wheels + sys.path + folders
            start_pytest(args[2:], wheels, here=True)
        paths = wheels + folders + os.environ.get('PYTHONPATH', '').split(':')
        os.environ['PYTHONPATH'] = ':'.join(path for path in paths if path)
        os.execv(python(), [python()] + args)
    for archive in wheels:
        target = entry_points(archive, 'console_scripts').get(command)
        if target:
            sys.path[:] = wheels + sys.path + folders
            if command in ('pytest', 'py.test'):
                start_pytest(args, wheels)
            call(target, command, args)
    path = real(command) if '/' not in command else command
    if path is None:
        missing('command ' + command, 127)
    os.environ['PYTHONPATH'] = ':'.join(wheels + folders + [os.environ.get('PYTHONPATH', '')]).strip(':')
    os.execv(path, [path] + args)


def options(args, valued):
    """Splits off leading options: ({name: [values]}, rest)."""
    found = {}
    args = list(args)
    while args and args[0].startswith('-') and args[0] != '-':
        word = args.pop(0)
        if word == '--':
            break
        name, equals, value = word.partition('=')
        if not word.startswith('--') and len(word) > 2 and word[:2] in valued:
            name, equals, value = word[:2], '=', word[2:].lstrip('=')
        if name in valued and not equals:
            value = args.pop(0) if args else ''
        found.setdefault(name, []).append(value)
    return found, args


UV_VALUED = {
    '-p', '--python', '-w', '--with', '--from', '--with-requirements', '--with-editable', '--index', '--index-url', '-i', '--default-index',
    '--extra-index-url', '-f', '--find-links', '-c', '--constraints', '--constraint', '--overrides', '--directory', '--project',
    '--cache-dir', '--python-preference', '--extra', '--group', '--package', '--env-file', '-m', '--module', '--color', '--name', '--prompt',
    '-r', '--requirements', '--requirement', '--link-mode', '--target', '--prefix', '--exclude-newer', '--resolution', '--index-strategy',
}


def values(found, *names):
    return [value for name in names for value in found.get(name, [])]


def with_requirements(found):
    texts = [text for value in values(found, '-w', '--with') for text in value.split(',')]
    for path in values(found, '--with-requirements', '-r', '--requirements', '--requirement'):
        texts += read_requirements(path)
    return texts + values(found, '--with-editable')


def enter(found):
    for folder in values(found, '--directory'):
        os.chdir(folder)


def uv_online(tool, args):
    """With a network, what the kit lacks is uv's own to bring."""
    if not index()['network']:
        return
    command = real(tool)
    if command is None and real('curl'):
        home = STATE + '/uv'
        script = "set -e; '%s' -LsSf https://astral.sh/uv/install.sh | env UV_NO_MODIFY_PATH=1 UV_INSTALL_DIR='%s' sh" % (real('curl'), home)
        if subprocess.call(['sh', '-c', script]) == 0:
            command = home + '/' + tool
    if command:
        os.execv(command, [command] + args)


def uvx(args):
    found, rest = options(args, UV_VALUED)
    if not rest:
        print('uv (verifier kit)')
        return
    enter(found)
    command = rest[0].partition('@')[0].partition('==')[0]
    texts = with_requirements(found) + (values(found, '--from') or [rest[0]])
    if lacks(texts):
        uv_online('uvx', args)
    run(texts, command, rest[1:])


def uv(args):
    found, rest = options(args, UV_VALUED)
    enter(found)
    if not rest or '--version' in found or '-V' in found:
        print('uv (verifier kit)')
        return
    action, rest = rest[0], rest[1:]
    if action == 'tool' and rest:
        action, rest = 'tool ' + rest[0], rest[1:]
    if action == 'pip':
        return pip(rest, 'uv')
    if action == 'tool run':
        return uvx(rest)
    if action in ('run', 'add', 'sync', 'venv', 'tool install', 'init'):
        more, rest = options(rest, UV_VALUED)
        enter(more)
        if action == 'run':
            return uv_run(args, more, rest)
        if action == 'venv':
            return venv(rest[0] if rest else '.venv')
        if action == 'init':
            return init(rest)
        texts = project_requirements() if action == 'sync' else [text for text in rest if not text.startswith('-')] + with_requirements(more)
        if lacks(texts):
            uv_online('uv', args)
        return install(texts)
    if action in ('python', 'cache', 'self', 'lock', 'version', 'remove', 'help'):
        return None
    missing('uv ' + action)


def uv_run(args, found, rest):
    modules = values(found, '-m', '--module')
    if modules:
        rest = ['python', '-m', modules[0]] + rest
    own = real('uv')
    if own and os.path.isdir('.venv/bin') and not os.path.exists('.venv/verifier-kit'):
        os.environ['UV_OFFLINE'] = '' if index()['network'] else '1'
        os.execv(own, [own] + args)
    texts = with_requirements(found) + installed() + project_requirements()
    if lacks(texts):
        uv_online('uv', args)
    if not rest:
        return
    if rest[0].endswith('.py'):
        rest = ['python'] + rest
    run(texts, rest[0], rest[1:])


def init(rest):
    folder = rest[0] if rest else '.'
    path = os.path.join(folder, 'pyproject.toml')
    if os.path.exists(path):
        print('error: Project is already initialized in `%s`' % os.path.abspath(folder), file=sys.stderr)
        sys.exit(2)
    os.makedirs(folder, exist_ok=True)
    with open(path, 'w') as file:
        file.write('[project]\nname = "tests"\nversion = "0.1.0"\ndependencies = []\n')


def venv(folder):
    folder = os.path.abspath(folder)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder + '/bin')
    files = {
        'verifier-kit': '',
        'bin/activate': 'VIRTUAL_ENV=%s\nexport VIRTUAL_ENV\nPATH=%s/bin:$PATH\nexport PATH\ndeactivate() { :; }\n' % (folder, folder),
        'bin/python': "#!/bin/sh\nexec '%s/bin/python3' \"$@\"\n" % KIT,
        'bin/python3': "#!/bin/sh\nexec '%s/bin/python3' \"$@\"\n" % KIT,
        'bin/pytest': "#!/bin/sh\nexec '%s/pytest' '%s' \"$@\"\n" % (KIT, python()),
    }
    for name, text in files.items():
        with open(os.path.join(folder, name), 'w') as file:
            file.write(text)
        os.chmod(os.path.join(folder, name), 0o755)


def pip(args, tool='pip'):
    found, rest = options(args, UV_VALUED)
    if not rest:
        print('pip (verifier kit)')
        return
    action = rest.pop(0)
    if action != 'install':
        if action in ('list', 'show', 'freeze', 'check', 'cache', 'config'):
            os.execv(python(), [python(), '-m', 'pip', action] + rest)
        missing('pip ' + action)
    texts = []
    while rest:
        found, rest = options(rest, UV_VALUED | {'-t', '-e', '--editable', '--timeout', '--retries', '--trusted-host', '--root'})
        for path in values(found, '-r', '--requirement', '--requirements'):
            texts += read_requirements(path)
        texts += values(found, '-e', '--editable')
        if rest:
            texts.append(rest.pop(0))
    paths = [text for text in texts if requirement(text)[0] is None]
    texts = [text for text in texts if requirement(text)[0] is not None]
    if paths or (lacks(texts) and index()['network']):
        extra = [] if index()['network'] else ['--no-index', '--no-build-isolation', '--no-deps']
        wanted = paths + (lacks(texts) if index()['network'] else [])
        if subprocess.call([python(), '-m', 'pip', 'install'] + extra + wanted) != 0:
            missing('pip install ' + ' '.join(wanted))
        texts = [text for text in texts if text not in wanted]
    install(texts)
