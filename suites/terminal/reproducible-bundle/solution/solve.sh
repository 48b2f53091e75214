#!/bin/bash
set -e
cat > /app/bundle.sh <<'SH'
#!/bin/bash
set -e -o pipefail
export LC_ALL=C
archive=$(realpath -m -- "$2")
mkdir -p -- "$(dirname -- "$archive")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd -- "$1"
find . -name .git -type d -prune -o -type d -print0 -o -type f ! -name '*~' -print0 | sort -z > "$work/names"
# Modes are set on a copy: the originals stay as they are.
mkdir "$work/copy"
tar -c --no-recursion --null -T "$work/names" | tar -x -C "$work/copy"
cd "$work/copy"
find . -type d -exec chmod 755 {} +
find . -type f -perm -u+x -exec chmod 755 {} +
find . -type f ! -perm -u+x -exec chmod 644 {} +
tar -c --format=gnu --no-recursion --numeric-owner --owner=0 --group=0 --mtime="@${SOURCE_DATE_EPOCH:-0}" --null -T "$work/names" | gzip -n -9 > "$archive"
cd -- "$(dirname -- "$archive")"
sha256sum -- "$(basename -- "$archive")" > "$archive.sha256"
SH
chmod +x /app/bundle.sh
/app/bundle.sh /app/project /app/out/project.tar.gz
