/**
 * just-bash's `diff` takes time by the product of the lines that differ: two files of 5,000 lines held the worker's thread for many seconds.
 * Beyond a bound it says what diff says when it runs out of memory. What the files have in common at both ends costs nothing and does
 * not count.
 */
import { decodeBytesToUtf8, defineCommand } from 'just-bash';

/** Lines of one file times lines of the other. */
const maxLinePairs = 2_000_000;

export const boundedDiff = defineCommand('diff', async (args, context) => {
  const missing = { stdout: '', stderr: 'diff: command not found\n', exitCode: 127 };
  const names = args.filter((argument) => argument === '-' || !argument.startsWith('-'));
  const read = async (name: string): Promise<string[]> => {
    const text = name === '-' ? decodeBytesToUtf8(context.stdin) : await context.fs.readFile(context.fs.resolvePath(context.cwd, name));
    return text.split('\n');
  };
  const brief = args.some((argument) => argument === '--brief' || /^-[a-z]*q/.test(argument));
  if (!brief && names.length >= 2) {
    // Where a file cannot be read, diff itself says so.
    const files = await Promise.all(names.slice(0, 2).map((name) => read(name).catch((): string[] => [])));
    if (linePairs(files[0] ?? [], files[1] ?? []) > maxLinePairs) return { stdout: '', stderr: 'diff: memory exhausted\n', exitCode: 2 };
  }
  return (await context.origCommand?.(args)) ?? missing;
});

function linePairs(a: readonly string[], b: readonly string[]): number {
  const shorter = Math.min(a.length, b.length);
  let head = 0;
  while (head < shorter && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < shorter - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  return (a.length - head - tail) * (b.length - head - tail);
}
