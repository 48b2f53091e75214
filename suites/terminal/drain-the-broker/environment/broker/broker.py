"""A broker with one topic. Messages are handed out in pages, some of them twice; every seventh answer is 503."""
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlparse

HELP = """GET /help                              this text
POST /session                          answers {"token": ...}; a token is good for 12 requests
GET /topics/NAME/messages?after=CURSOR with the header Authorization: Bearer TOKEN answers {"messages": [...], "next": CURSOR or null};
                                       without after, from the beginning. 401: the token is used up or unknown. 503: try again.
"""
state = 4242
sessions = {}
answered = 0


def pick(count):
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 33) % count


def make():
    messages = []
    for number in range(230):
        celsius = pick(9000) / 100 - 30
        unit = "CF"[pick(3) == 0]
        value = f"{celsius:.2f}" if unit == "C" else f"{celsius * 9 / 5 + 32:.3f}"
        messages.append({"id": f"m{number:04}", "body": f"sensor={['attic', 'cellar', 'garden', 'roof'][pick(4)]};temp={value}{unit};seq={number}"})
        if pick(5) == 0:
            messages.append(messages[pick(len(messages))])
    return messages


MESSAGES = make()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        if self.path != "/session":
            return self.answer(404, {"error": "no such path"})
        token = f"t{len(sessions) + 1}"
        sessions[token] = 12
        self.answer(200, {"token": token})

    def do_GET(self):
        global answered
        url = urlparse(self.path)
        if url.path == "/help":
            return self.answer(200, HELP)
        if url.path != "/topics/readings/messages":
            return self.answer(404, {"error": "no such path"})
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if sessions.get(token, 0) <= 0:
            return self.answer(401, {"error": "token used up or unknown"})
        sessions[token] -= 1
        answered += 1
        if answered % 7 == 0:
            return self.answer(503, {"error": "busy"})
        after = int(parse_qs(url.query).get("after", ["0"])[0])
        page = MESSAGES[after : after + 9]
        self.answer(200, {"messages": page, "next": str(after + 9) if after + 9 < len(MESSAGES) else None})

    def answer(self, status, content):
        body = (content if isinstance(content, str) else json.dumps(content)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


ThreadingHTTPServer(("127.0.0.1", 9090), Handler).serve_forever()
