"""The verifier's kit inside a sandbox: what test scripts fetch from the network (uv, pytest, a few packages), from a folder instead.

    python3 -I -S -B kit.py uv|uvx|pip|apt-get|curl|wget ARGS...    stands in for that command
    python3 -I -S -B kit.py pytest [--here] ARGS...                 the image's own pytest, without what the agent planted

What cannot be given is written to state/missing: the verification then has no verdict. Notes (other versions) go to state/notes.
index.json: packages (name, version, file, requires) and whether there is a network. Runs on any Python from 3.7; the packages need 3.9.
"""
import json
import os
import re
import subprocess
import sys
import zipfile

KIT = os.path.dirname(os.path.abspath(__file__))
STATE = KIT + '/state'
SITE = STATE + '/site'
# What an installation may ask for that no test can miss once Python runs.
PRESENT = {'pip', 'setuptools', 'wheel', 'uv', 'virtualenv'}
APT_STAND_INS = {'curl', 'wget', 'ca-certificates', 'python3-pip', 'python3-venv', 'python-is-python3', 'pipx'}


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


# --- packages -----------------------------------------------------------------------------------------------------------------------

def normal(name):
    return re.sub(r'[-_.]+', '-', name).lower()


def wheel(entry):
    return KIT + '/wheels/' + entry['file']


def requirement(text):
    """(name, specifier or None) of `name[extra]>=1; marker` or `name@version`; no name for paths and addresses."""
    text = text.split(';')[0].split(' #')[0].strip()
    found = re.match(r'^([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*(@?[=<>!~]*.*)$', text)
    if not found or '/' in text or text in ('.', '..'):
        return None, None
    name, rest = normal(found.group(1)), found.group(2).strip()
    if rest.startswith('@'):
        rest = '' if rest[1:].strip() == 'latest' else '==' + rest[1:].strip()
    return name, rest.strip('()') or None


def satisfied(version, specifier):
    sys.path.insert(0, wheel(index()['packages']['packaging']))
    try:
        from packaging.specifiers import InvalidSpecifier, SpecifierSet
        try:
            return SpecifierSet(specifier).contains(version, prereleases=True)
        except InvalidSpecifier:
            return False
    finally:
        sys.path.pop(0)


def image_package(name):
    """(version, folder) of what the image's Python has, or None."""
    code = 'import importlib.metadata as m, sys; d = m.distribution(sys.argv[1]); print(d.version); print(d.locate_file(""))'
    done = subprocess.run([python(), '-s', '-c', code, name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd='/')
    return done.stdout.decode().split('\n')[:2] if done.returncode == 0 else None


def resolve(texts):
    """Names of the kit's packages that the requirements need, with what those need; and the folders of what the image has of the rest."""
    packages = index()['packages']
    names, folders = [], []
    for text in texts:
        name, specifier = requirement(text)
        if name is None:
            missing('package ' + text)
        if name in packages:
            version = packages[name]['version']
            add(packages, name, names)
        elif name in PRESENT:
            continue
        else:
            found = image_package(name)
            if found is None:
                missing('package ' + text)
            version, folder = found
            folders.append(folder)
            note('%s %s is the image\'s own' % (name, version))
        if specifier and not satisfied(version, specifier):
            note('%s%s was asked for; %s is used' % (name, specifier, version))
    if names and sys.version_info < (3, 9):
        missing('Python 3.9 in the image, for pytest (it has %d.%d)' % sys.version_info[:2])
    return names, folders


def add(packages, name, names):
    if name in names:
        return
    names.append(name)
    for other in packages[name]['requires']:
        add(packages, other, names)


def read_requirements(path):
    lines = []
    with open(path) as file:
        for line in file:
            line = re.sub(r'(^|\s)#.*', '', line).strip()
            if line.startswith(('-r', '--requirement')):
                lines += read_requirements(os.path.join(os.path.dirname(path), line.split(None, 1)[-1].split('=')[-1]))
            elif line and not line.startswith('-'):
                lines.append(line)
    return lines


def project_requirements():
    """The dependencies of a pyproject.toml in the current folder."""
    if not os.path.exists('pyproject.toml'):
        return []
    sys.path.insert(0, wheel(index()['packages']['tomli']))
    import tomli
    sys.path.pop(0)
    try:
        with open('pyproject.toml', 'rb') as file:
            project = tomli.load(file)
    except (OSError, ValueError):
        return []
    groups = project.get('dependency-groups', {}).get('dev', [])
    return list(project.get('project', {}).get('dependencies', [])) + [text for text in groups if isinstance(text, str)]


def entry_points(archive, group):
    """{name: 'module:attribute'} of a wheel."""
    with zipfile.ZipFile(archive) as files:
        for name in files.namelist():
            if name.endswith('.dist-info/entry_points.txt'):
                return parse_entry_points(files.read(name).decode(), group)
    return {}


def parse_entry_points(text, group):
    found, here = {}, False
    for line in text.split('\n'):
        line = line.strip()
        if line.startswith('['):
            here = line == '[%s]' % group
        elif here and '=' in line and not line.startswith('#'):
            name, target = line.split('=', 1)
            found[name.strip()] = target.split('[')[0].strip()
    return found


def installed():
    try:
        with open(STATE + '/installed') as file:
            return file.read().split()
    except OSError:
        return []


def install(texts):
    """For every later command of the tests: the packages, and their commands on PATH."""
    packages = index()['packages']
    names, _ = resolve(texts)
    for name in names:
        if name in installed():
            continue
        archive = wheel(packages[name])
        with zipfile.ZipFile(archive) as files:
            files.extractall(SITE)
        for command in entry_points(archive, 'console_scripts'):
            script = os.path.join(STATE, 'bin', command)
            with open(script, 'w') as file:
                if command in ('pytest', 'py.test'):
                    file.write("#!/bin/sh\nexec '%s/pytest' '%s' \"$@\"\n" % (KIT, python()))
                else:
                    file.write("#!/bin/sh\nexec '%s' -I -S -B '%s/kit.py' command %s \"$@\"\n" % (python(), KIT, command))
            os.chmod(script, 0o755)
        append('installed', name)


# --- running ------------------------------------------------------------------------------------------------------------------------

def call(target, command, args):
    module, attribute = target.split(':')
    sys.argv = [command] + args
    imported = __import__(module, fromlist=['_'])
    for part in attribute.split('.'):
        imported = getattr(imported, part)
    sys.exit(imported())


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


def lacks(texts):
    packages = index()['packages']
    return [text for text in texts if requirement(text)[0] not in packages and requirement(text)[0] not in PRESENT]


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
    os.makedirs(folder + '/bin', exist_ok=True)
    files = {
        'verifier-kit': '',
        'bin/activate': 'VIRTUAL_ENV=%s\nexport VIRTUAL_ENV\nPATH=%s/bin:%s/state/bin:$PATH\nexport PATH\ndeactivate() { :; }\n' % (folder, KIT, KIT),
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


# --- pytest -------------------------------------------------------------------------------------------------------------------------

def original(path):
    """Whether a file came with the image or with the verification; what came in between is the agent's."""
    if path.startswith(KIT + '/'):
        return True
    with open(KIT + '/start') as file:
        start = int(file.read())
    try:
        changed = max(os.lstat(path).st_ctime_ns, os.stat(path).st_ctime_ns)
    except OSError:
        return False
    return changed // 10**9 <= start or changed > os.stat(KIT + '/now').st_ctime_ns


class Plugins:
    """Loads what pytest would load by itself (entry points): those of the wheels, else all that the agent did not plant."""

    def __init__(self, wheels):
        self.wheels = wheels

    def pytest_addoption(self, parser, pluginmanager):
        for name, target in self.targets():
            if pluginmanager.is_blocked(name) or pluginmanager.has_plugin(name):
                continue
            module, _, attribute = target.partition(':')
            plugin = __import__(module, fromlist=['_'])
            pluginmanager.register(getattr(plugin, attribute) if attribute else plugin, name)

    def pytest_configure(self, config):
        # A pytest that the tests start judges for itself.
        os.environ.pop('PYTEST_DISABLE_PLUGIN_AUTOLOAD', None)

    def targets(self):
        if self.wheels:
            return [item for archive in self.wheels for item in entry_points(archive, 'pytest11').items()]
        return [item for folder in sys.path if os.path.isdir(folder) for item in self.planted_by_nobody(folder)]

    def planted_by_nobody(self, folder):
        import importlib.util
        for info in sorted(os.listdir(folder)):
            path = os.path.join(folder, info, 'entry_points.txt')
            if not info.endswith(('.dist-info', '.egg-info')) or not original(path):
                continue
            with open(path) as file:
                found = parse_entry_points(file.read(), 'pytest11')
            for name, target in found.items():
                spec = importlib.util.find_spec(target.split(':')[0].split('.')[0])
                if spec is not None and spec.origin and original(spec.origin):
                    yield name, target


def start_pytest(args, wheels, here=False):
    os.environ['PYTEST_DISABLE_PLUGIN_AUTOLOAD'] = '1'
    try:
        import pytest
    except ImportError:
        missing('package pytest')
    # As `python -m` does, but last: a file of the agent's must not stand in for a library.
    if here:
        sys.path.append(os.getcwd())
    sys.argv = ['pytest'] + args
    sys.exit(pytest.main(args, plugins=[Plugins(wheels)]))


def image_pytest(args):
    import site
    if sys.flags.no_site:
        for folder in site.getsitepackages() + ['/usr/lib/python3/dist-packages']:
            if not os.path.isdir(folder) or folder in sys.path:
                continue
            sys.path.append(folder)
            for name in sorted(os.listdir(folder)):
                if name.endswith('.pth') and original(os.path.join(folder, name)):
                    site.addpackage(folder, name, None)  # the image's editable installations
    own = [path for path in os.environ.get('PYTHONPATH', '').split(':') if path]
    sys.path[:] = [SITE] + own + [path for path in sys.path if path not in ('', KIT) and path not in own]
    here = args[:1] == ['--here']
    start_pytest(args[1:] if here else args, None, here)


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
