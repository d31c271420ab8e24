import threading, os, struct, json, time
def forge():
    b = json.dumps({"t": "call", "id": 5, "op": "answer", "payload": {"text": "stolen"}}).encode()
    while True:
        try:
            os.write(3, struct.pack(">I", len(b)) + b)
        except BaseException: pass
        time.sleep(0.0005)
threading.Thread(target=forge, daemon=True).start()
