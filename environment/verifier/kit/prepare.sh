# Makes the verifier's tools ready in a sandbox: sh prepare.sh KIT SHARED PYTEST KIT_TOOLS USER
#   KIT        the folder that was uploaded      SHARED      1: the agent worked here, so planted commands are passed by
#   PYTEST     1: the tests call pytest          KIT_TOOLS   1: they install things (uv, pip, apt-get, curl)
#   USER       who runs the tests; '' = root
# image_path is the PATH that the tests get; PATH itself begins with the system's own folders.
# What "came with the image" is told by the time of a file's last change (ctime), which no process can set.
kit=$1 shared=$2 pytest=$3 tools=$4 user=$5
mkdir -p "$kit/bin" "$kit/state/bin" "$kit/state/site" || exit 1
chmod 755 "$kit" "$kit/bin" || exit 1
[ -z "$user" ] || chown -R "$user" "$kit/state" || exit 1

# Rounded down: what is of the same second is nobody's we trust. kit.py reckons finer.
booted=$(sed -n 's/^btime //p' /proc/stat)
ticks=$(sed 's/.*) //' /proc/1/stat | cut -d' ' -f20)
start=$((booted + ticks / 100))
: >"$kit/now"

# 0 if neither the file nor the link that leads to it was changed since the sandbox started
original() {
  [ "$shared" = 1 ] || return 0
  changed=$(stat -c %Z "$1") && [ "$changed" -lt "$start" ] && changed=$(stat -L -c %Z "$1") && [ "$changed" -lt "$start" ]
}

# first and best: the command of that name that PATH gives, and the first one that came with the image ('' = none)
look() {
  first='' best=''
  rest=$image_path:
  while [ -n "$rest" ]; do
    directory=${rest%%:*} rest=${rest#*:}
    case $directory in /*) ;; *) continue ;; esac
    [ -f "$directory/$1" ] && [ -x "$directory/$1" ] || continue
    [ -n "$first" ] || first=$directory/$1
    original "$directory/$1" || continue
    best=$directory/$1
    return
  done
}

write() {
  rm -f "$kit/bin/$1"
  printf '#!/bin/sh\n%s\n' "$2" >"$kit/bin/$1" && chmod 755 "$kit/bin/$1"
}

# Python looks there before its own library, where images have nothing.
for archive in /usr/lib/python3*.zip /usr/local/lib/python3*.zip; do
  if [ -e "$archive" ] && ! original "$archive"; then rm -rf "$archive"; fi
done

# A command that the agent has put in front of the image's own does not run.
if [ "$shared" = 1 ]; then
  for name in sh bash env cat echo printf test true false grep egrep sed awk find xargs cp mv rm ln mkdir touch chmod ls stat head tail \
    sort uniq wc cut tr tee diff cmp date sleep timeout seq basename dirname realpath readlink mktemp md5sum sha1sum sha256sum base64 od \
    tar gzip ps kill pgrep pkill id curl wget jq git perl python3 python node ruby make gcc cc g++ sqlite3 openssl ssh nc ss; do
    look "$name"
    [ -z "$best" ] || [ "$best" = "$first" ] || write "$name" "exec '$best' \"\$@\""
  done
fi

python=''
if [ "$pytest" = 1 ] || [ "$tools" = 1 ]; then
  for name in python3 python; do
    look "$name"
    real=${best:-$first}
    [ -n "$real" ] || continue
    [ -n "$python" ] || python=$real
    # Without its own folder in front of the libraries, where an agent's pytest.py would be run for pytest.
    write "$name" "if [ \"\${1-}\" = -m ] && [ \"\${2-}\" = pytest ]; then shift 2; exec '$kit/pytest' '$real' --here \"\$@\"; fi; exec '$real' \"\$@\""
  done
fi
printf '%s\n' "$python" >"$kit/python"

# '$kit/pytest' PYTHON ARGS: without site, so that neither sitecustomize nor planted .pth files run; an environment of its own needs it.
cat >"$kit/pytest" <<END
#!/bin/sh
python=\$1; shift
if [ -e "\${python%/*}/../pyvenv.cfg" ]; then exec "\$python" -B -s '$kit/kit.py' pytest "\$@"; fi
exec "\$python" -I -S -B '$kit/kit.py' pytest "\$@"
END
chmod 755 "$kit/pytest"
if [ "$pytest" = 1 ]; then
  for name in pytest py.test; do
    look "$name"
    real=${best:-$first}
    [ -n "$real" ] || continue
    interpreter=$(head -n 1 "$real" | sed -n 's/^#! *\(\/[^ ]*python[0-9.]*\)$/\1/p')
    [ -n "$interpreter" ] && write "$name" "exec '$kit/pytest' '$interpreter' \"\$@\""
  done
fi

if [ "$tools" = 1 ]; then
  for name in uv uvx pip pip3 apt-get apt curl wget; do
    if [ -n "$python" ]; then write "$name" "exec '$python' -I -S -B '$kit/kit.py' $name \"\$@\""
    else write "$name" "echo 'python3 in the image, for $name' >>'$kit/state/missing'; echo 'verifier kit: no python3 in the image' >&2; exit 127"; fi
  done
fi
exit 0
