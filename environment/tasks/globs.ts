/** Shell patterns over names as Harbor's dataset filters use them (Python's fnmatch): `*`, `?`, `[a-z]`, `[!a]`; `*` crosses slashes. */
export function globMatcher(pattern: string): (name: string) => boolean {
  let source = '';
  for (let at = 0; at < pattern.length; at++) {
    const character = pattern[at] ?? '';
    if (character === '*') source += '.*';
    else if (character === '?') source += '.';
    else if (character === '[') {
      // A bracket directly after the opening one, or after !, is a member.
      const end = pattern.indexOf(']', at + (pattern[at + 1] === '!' ? 3 : 2));
      if (end < 0) source += '\\[';
      else {
        const members = pattern.slice(at + 1, end).replace(/[\\[\]]/g, '\\$&');
        source += `[${members.replace(/^\^/, '\\^').replace(/^!/, '^')}]`;
        at = end;
      }
    } else source += character.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&');
  }
  const expression = new RegExp(`^${source}$`, 's');
  return (name) => expression.test(name);
}
