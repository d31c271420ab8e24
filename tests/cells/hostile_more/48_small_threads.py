import threading, time
threading.stack_size(32768)
n = 0
try:
    while True:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start(); n += 1
except BaseException as e:
    print(n, type(e).__name__)
time.sleep(1000)
