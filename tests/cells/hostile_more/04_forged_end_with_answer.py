import os, struct, json
b = json.dumps({"t": "done", "id": 1, "status": "ok", "answer": "x", "stdout": [["deep"] * 3], "value": {"a": 1}, "error": 5, "error_type": None, "truncated": "yes", "restarted": True}).encode()
os.write(3, struct.pack(">I", len(b)) + b)
while True:
    pass
