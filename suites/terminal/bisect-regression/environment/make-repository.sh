# Commits with fixed authors and times, so that the repository is the same wherever it is made.
set -e
git config --global --add safe.directory '*'
git config --global init.defaultBranch main
git config --global user.name Builder
git config --global user.email builder@example.org
cd /app/roman
git init -q
write() { # write TABLE MESSAGE NOTE
  cat > roman.py <<PY
# $3
import sys

TABLE = [
$1
]


def roman(number):
    if not 0 < number < 4000:
        raise SystemExit('$2')
    text = ''
    for value, letters in TABLE:
        while number >= value:
            text += letters
            number -= value
    return text


if __name__ == '__main__':
    print(roman(int(sys.argv[1])))
PY
}
pairs="1000 M 900 CM 500 D 400 CD 100 C 90 XC 50 L 40 XL 10 X 9 IX 5 V 4 IV 1 I"
table=$(printf "    (%s, '%s'),\n" $pairs)
for number in $(seq 60); do
  # The change of one entry hides in a rewrite of the message.
  if [ "$number" -eq 38 ]; then table=${table/"(40, 'XL')"/"(40, 'XXXX')"}; fi
  message="roman: $((number / 9)): expected 1 to 3999"
  write "$table" "$message" "revision $((number / 3))"
  echo "- change $number" >> CHANGES.md
  git add -A
  clock=$((1720000000 + 600 * number))
  GIT_AUTHOR_DATE="$clock +0000" GIT_COMMITTER_DATE="$clock +0000" git commit -q -m "Change $number"
done
