"""Starting pytest: without plugins, start-up files or modules that the agent planted."""
import os
import sys
import time

from .base import KIT, SITE, missing
from .packages import entry_points, parse_entry_points


def call(target, command, args):
    module, attribute = target.split(':')
    sys.argv = [command] + args
    imported = __import__(module, fromlist=['_'])
    for part in attribute.split('.'):
        imported = getattr(imported, part)
    sys.exit(imported())


def original(path):
    """Whether a file came with the image or with the verification; what came in between is the agent's."""
    if path.startswith(KIT + '/'):
        return True
    with open('/proc/1/stat') as file:
        ticks = int(file.read().rsplit(')', 1)[1].split()[19])
    start = time.time() - time.clock_gettime(7) + ticks / os.sysconf('SC_CLK_TCK')  # 7: CLOCK_BOOTTIME
    try:
        changed = max(os.lstat(path).st_ctime_ns, os.stat(path).st_ctime_ns)
    except OSError:
        return False
    return changed <= start * 10**9 or changed > os.stat(KIT + '/now').st_ctime_ns


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
            if not info.endswith(('.dist-info', '.egg-info')) or not os.path.isfile(path) or not original(path):
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
    except ImportError as error:
        missing('package pytest (%s)' % error)
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
