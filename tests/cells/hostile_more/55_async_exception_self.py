import threading, ctypes, time
me = threading.get_ident()
def fire():
    while True:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(me), ctypes.py_object(SystemExit))
        time.sleep(0)
threading.Thread(target=fire, daemon=True).start()
while True:
    try: time.sleep(0.001)
    except BaseException: break
