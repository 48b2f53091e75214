/** Names of steps are names of directories, and must be so on every file system. */

const reserved = /[<>:"/\\|?*\p{Cc}]/u;
const device = /^(CON|PRN|AUX|NUL|CONIN\$|CONOUT\$|(COM|LPT)[1-9¹²³])$/i;

/** What is wrong with the name, or undefined. */
export function stepNameFault(name: string): string | undefined {
  if (name.trim() === '' || /^\.{1,2}$/.test(name) || /[. ]$/.test(name))
    return 'expected a directory name, not ending in a dot or a space';
  if (reserved.test(name)) return 'expected a portable directory name, without < > : " / \\ | ? * and control characters';
  if (device.test((name.split('.')[0] ?? '').trimEnd())) return 'expected another name than that of a Windows device';
  return Buffer.byteLength(name) > 255 ? 'expected at most 255 bytes' : undefined;
}

/** Equal for names that some file systems take for the same one. */
export function stepNameKey(name: string): string {
  // Upper case first: it spells out what folds to several letters, such as ß.
  return name.normalize('NFC').toUpperCase().toLowerCase();
}
