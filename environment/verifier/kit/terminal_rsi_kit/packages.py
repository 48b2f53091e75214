"""Requirements, which of them the kit or the image has, and their installation for the rest of the test run."""
import os
import re
import subprocess
import sys
import zipfile

from .base import KIT, SITE, STATE, append, index, missing, note, python

# What an installation may ask for that no test can miss once Python runs.
PRESENT = {'pip', 'setuptools', 'wheel', 'uv', 'virtualenv'}


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


def lacks(texts):
    packages = index()['packages']
    return [text for text in texts if requirement(text)[0] not in packages and requirement(text)[0] not in PRESENT]


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
