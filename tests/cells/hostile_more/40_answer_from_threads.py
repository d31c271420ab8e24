import threading
def say(i):
    try: answer(f"thread {i}")
    except BaseException as e: pass
ts = [threading.Thread(target=say, args=(i,)) for i in range(20)]
[t.start() for t in ts]; [t.join() for t in ts]
for i in range(50):
    try: answer(i)
    except ToolError: pass
raise ValueError("not an end")
