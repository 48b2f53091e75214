# Commits with fixed authors and times, so that the repository is the same wherever it is made.
set -e
git config --global --add safe.directory '*'
git config --global init.defaultBranch main
git config --global user.name Builder
git config --global user.email builder@example.org
cd /app/gateway
git init -q
clock=1700000000
commit() {
  clock=$((clock + 3600))
  git add -A
  GIT_AUTHOR_NAME="$1" GIT_AUTHOR_EMAIL="${1,,}@example.org" GIT_AUTHOR_DATE="$clock +0000" GIT_COMMITTER_DATE="$clock +0000" \
    git commit -q -m "$2"
}
echo 'def handle(request): return 200' > gateway.py
commit Ines 'Start'
echo '# Gateway' > README.md
commit Ines 'Say what it is'
cat > limiter.py <<'PY'
class RateLimiter:
    def __init__(self, rate):
        self.rate = rate
PY
git checkout -q -b draft
commit Jonas 'WIP limiter'
git checkout -q main
cat > limiter.py <<'PY'
class RateLimiter:
    """Token bucket: `rate` tokens a second, at most `burst` of them."""

    def __init__(self, rate, burst):
        self.rate, self.burst, self.tokens, self.at = rate, burst, burst, 0.0

    def allow(self, now):
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True
PY
commit Jonas 'Add rate limiter'
echo 'debug = True' > local.py
commit Jonas 'Leave debugging on'
git reset -q --hard HEAD~2
git branch -q -D draft
echo 'def handle(request): return 200 if request else 400' > gateway.py
commit Ines 'Refuse empty requests'
printf '# Gateway\n\nAnswers.\n' > README.md
commit Ines 'Say what it does'
rm -rf .git/logs .git/ORIG_HEAD
git config core.logAllRefUpdates false
