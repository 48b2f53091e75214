#!/bin/bash
cat > /app/rotate.sh <<'SH'
#!/bin/bash
if [ $# -ne 2 ] || [ ! -d "$1" ] || [[ ! $2 =~ ^[0-9]+$ ]]; then
  echo "usage: rotate.sh DIRECTORY KEEP" >&2
  exit 2
fi
keep=$((10#$2))
cd -- "$1" || exit 2
exec 9< .
flock -n 9 || exit 75
shopt -s nullglob
for log in *.log; do
  log=./$log
  [ -f "$log" ] && [ -s "$log" ] || continue
  numbers=()
  for file in "$log".*.gz; do
    number=${file#"$log".}
    number=${number%.gz}
    [[ $number =~ ^[1-9][0-9]*$ ]] && numbers+=("$number")
  done
  for number in $(printf '%s\n' "${numbers[@]}" | sort -rn); do
    if [ "$number" -ge "$keep" ]; then rm -- "$log.$number.gz"; else mv -- "$log.$number.gz" "$log.$((number + 1)).gz"; fi
  done
  if [ "$keep" -gt 0 ]; then gzip -c < "$log" > "$log.1.gz"; fi
  : > "$log"
  printf '%s\n' "${log#./}"
done
SH
chmod +x /app/rotate.sh
echo '30 3 * * * /app/rotate.sh /var/log/shop 7' > /app/crontab
