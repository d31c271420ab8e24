import os, struct, json
def say(op, payload, id=1):
    b = json.dumps({"t": "call", "id": id, "op": op, "payload": payload}).encode()
    os.write(3, struct.pack(">I", len(b)) + b)
    n = struct.unpack(">I", os.read(3, 4))[0]
    data = b""
    while len(data) < n:
        data += os.read(3, n - len(data))
    return json.loads(data)
ODD = (None, True, 5, -1, 1e308, float("nan"), "", "\ud800", "x" * 100000, [], [[]], {}, {"a": 1}, ["Math"], 10**300)
for op in ("server", "resolve", "info", "load_server", "search", "answer_", "call", "__class__", "", "\ud800", "call" * 100):
    for v in ODD:
        for payload in ({}, {"server": v}, {"server": "Math", "tool": v}, {"server": "Math", "tool": "add", "args": v}, {"server": "Math", "tool": "add", "kwargs": v}, {"tools": v}, {"tools": [v]}, {"query": v, "k": v}, {"server": "Math", "tool": "add", "args": [v, v]}):
            r = say(op, payload)
            assert "error" in r or "value" in r
