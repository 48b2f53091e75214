"""Three days of logs from a fixed sequence of numbers: the same wherever they are made."""
import gzip
import os

state = 77


def pick(count):
    global state
    state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
    return (state >> 33) % count


users = ["alma", "boris", "carla", "dario", "erin", "farid", "gita", "hugo"]
os.makedirs("/app/logs")
for day, name in ((1, "auth.log.2.gz"), (2, "auth.log.1.gz"), (3, "auth.log")):
    lines = []

    def add(second, text):
        clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
        lines.append(f"2024-03-{day:02}T{clock} host=web{1 + pick(3)} pid={1000 + pick(8000)} {text}\n")

    for _ in range(700):
        second, user, ip = pick(86400), users[pick(8)], f"10.0.{pick(4)}.{1 + pick(20)}"
        add(second, f"login user={user} ip={ip} result={'fail' if pick(6) == 0 else 'ok'}")
        if pick(3) == 0:
            add(pick(86400), f"cron job=cleanup note=login_fail user={user} ip=10.0.3.77 result=fail")
    for _ in range(160):
        add(pick(86400), f"login user={users[pick(6)]} ip=10.0.3.77 result=fail")
    if day == 1:  # a success before any failure, and one after four
        add(5, "login user=gita ip=10.0.3.77 result=ok")
        for second in (20, 25, 30, 35):
            add(second, "login user=hugo ip=10.0.3.77 result=fail")
        add(40, "login user=hugo ip=10.0.3.77 result=ok")
    if day == 2:
        add(pick(86400), "login user=dario ip=10.0.3.7 result=ok")
        add(61234, "login user=carla ip=10.0.3.77 result=ok")
    if day == 3:
        add(40000, "login user=boris ip=10.0.3.77 result=ok")
    for place in range(len(lines) - 1, 0, -1):
        other = pick(place + 1)
        lines[place], lines[other] = lines[other], lines[place]
    data = "".join(lines).encode()
    with open(f"/app/logs/{name}", "wb") as stream:
        stream.write(gzip.compress(data, mtime=0) if name.endswith("gz") else data)
