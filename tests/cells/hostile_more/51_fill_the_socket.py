import os
os.set_blocking(3, False)
try:
    while True: os.write(3, b"\x00\x00\x00\x02{}" * 1000)
except BaseException as e: print(type(e).__name__)
