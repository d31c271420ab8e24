import threading, queue, time
q, results, lock = queue.Queue(), [], threading.Lock()
shop = MCPServer("Shop")
def work():
    while True:
        try: n = q.get_nowait()
        except queue.Empty: return
        o = shop.get_order(order_id=f"ORD-{n}")
        with lock: results.append(o["order_id"])
        q.task_done()
for n in range(1000, 1008): q.put(n)
ts = [threading.Thread(target=work, daemon=True) for _ in range(3)]
for t in ts: t.start()
for t in ts: t.join()
print(sorted(results), threading.active_count(), threading.current_thread().name)
ev = threading.Event(); t = threading.Timer(0.01, ev.set); t.start(); print(ev.wait(5))
local = threading.local(); local.x = 1; print(hasattr(local, "x"))
def boom(): raise ValueError("in thread")
hook = []; threading.excepthook = lambda a: hook.append((a.exc_type.__name__, str(a.exc_value)))
t = threading.Thread(target=boom); t.start(); t.join(); hook
