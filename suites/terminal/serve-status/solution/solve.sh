#!/bin/bash
set -e
cat > /app/service.py <<'PY'
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

QUEUE = "/app/queue"


def jobs():
    return {entry.name: entry for entry in os.scandir(QUEUE) if entry.name.endswith(".job") and entry.is_file(follow_symlinks=False)}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        found = jobs()
        if self.path == "/status":
            oldest = min(found, key=lambda name: found[name].stat().st_mtime, default=None)
            self.answer(200, json.dumps({"waiting": len(found), "oldest": oldest}).encode())
        elif self.path.startswith("/jobs/") and self.path[6:] in found:
            with open(os.path.join(QUEUE, self.path[6:]), "rb") as stream:
                self.answer(200, stream.read())
        else:
            self.answer(404, b"")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


ThreadingHTTPServer(("127.0.0.1", 8080), Handler).serve_forever()
PY
cd /app
setsid nohup python3 service.py > /dev/null 2>&1 < /dev/null &
echo $! > /app/service.pid
for _ in $(seq 50); do
  curl -fs http://127.0.0.1:8080/status > /dev/null && exit 0
  sleep 0.1
done
exit 1
